"""The files of `deploy/`: valid by their schemas, hardened, and about metrics that exist.

Containers are not started: see docs/deployment.md.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from memrecall.memory import Library
from memrecall.scope import Permission
from memrecall.settings import VARIABLE_PREFIX, Settings
from tests.cases import check_each
from tests.server.http_service import serve_in_process

from .local_cluster import PROXIES, ROOT, require_program

DEPLOY = ROOT / "deploy"
SCHEMAS = Path(__file__).parent / "schemas"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PINNED = re.compile(r".+:v?\d+\.\d+\.\d+(-[a-z]+)?")
# Prometheus makes this one itself.
OTHER_METRICS = {"up"}


def read(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text("utf-8"))


def walk(value: Any, key: str) -> Iterator[Any]:
    """Yield all values of a key, at any depth."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item, key)


def check_kubernetes(manifest: Any) -> None:
    """Raise ValidationError unless the manifest fits the schema of its kind."""
    schema = json.loads((SCHEMAS / "kubernetes-1.34.json").read_text("utf-8"))
    kind = schema["kinds"][f"{manifest['apiVersion']} {manifest['kind']}"]
    schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{kind}"}
    jsonschema.Draft202012Validator(schema).validate(manifest)


def check_compose(document: Any) -> None:
    """Raise ValidationError unless the document fits the compose specification."""
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text("utf-8"))
    jsonschema.Draft7Validator(schema).validate(document)


def test_compose_file_fits_the_specification() -> None:
    compose = read("compose.yaml")
    check_compose(compose)
    compose["services"]["nginx"]["depend_on"] = []
    with pytest.raises(jsonschema.ValidationError, match="depend_on"):
        check_compose(compose)


def test_compose_services_are_pinned_hardened_and_complete() -> None:
    compose = read("compose.yaml")
    for name, service in compose["services"].items():
        assert PINNED.fullmatch(service["image"]), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        if not service["image"].startswith("memrecall:"):  # its Dockerfile names the user
            assert int(service["user"].partition(":")[0]) > 0, name
        assert service["deploy"]["resources"]["limits"], name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        assert set(service.get("depends_on", ())) <= set(compose["services"]), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            exists = source in compose["volumes"] or (DEPLOY / source).exists()
            assert exists, (name, volume)
        for config in service.get("configs", ()):
            definition = compose["configs"][config["source"]]
            assert "content" in definition or (DEPLOY / definition["file"]).is_file()


def test_compose_proxy_and_prometheus_name_the_services() -> None:
    compose = read("compose.yaml")
    addresses = {f"{n}:8765" for n in compose["services"] if n.startswith("memrecall-")}
    assert len(addresses) == 2
    servers = re.findall(r"server (\S+)", compose["configs"]["servers"]["content"])
    (scrape,) = read("prometheus/prometheus.yaml")["scrape_configs"]
    assert set(servers) == addresses == set(scrape["static_configs"][0]["targets"])


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_kubernetes_manifest_fits_its_schema(file: Path) -> None:
    manifest = read(f"kubernetes/{file.name}")
    check_kubernetes(manifest)
    manifest["metadata"]["nmae"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="nmae"):
        check_kubernetes(manifest)


def test_kubernetes_has_all_parts() -> None:
    kinds = sorted(read(f"kubernetes/{file.name}")["kind"] for file in MANIFESTS)
    assert kinds == [
        *("Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy"),
        *("PodDisruptionBudget", "Secret", "Service"),
    ]


@pytest.mark.parametrize("name", ["deployment", "distribute-job"])
def test_pods_are_pinned_and_hardened(name: str) -> None:
    pod = read(f"kubernetes/{name}.yaml")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert PINNED.fullmatch(container["image"])
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert container["resources"]["requests"]["cpu"]
    # What the image writes to is a volume.
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/cache", "/tmp"}  # noqa: S108


def test_probes_and_selectors_fit_together() -> None:
    deployment = read("kubernetes/deployment.yaml")
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    drain = next(e["value"] for e in container["env"] if e["name"] == "MEMRECALL_DRAIN_SECONDS")
    probe = container["readinessProbe"]
    longest = probe["periodSeconds"] + probe["timeoutSeconds"]
    # All probes fail, the service drains, stops within 30 seconds, and only then is killed.
    assert longest < float(drain) < template["spec"]["terminationGracePeriodSeconds"] - 30
    labels = template["metadata"]["labels"].items()
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        read("kubernetes/service.yaml")["spec"]["selector"],
        read("kubernetes/disruption-budget.yaml")["spec"]["selector"]["matchLabels"],
        read("kubernetes/network-policy.yaml")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels
    scaled = read("kubernetes/autoscaler.yaml")["spec"]["scaleTargetRef"]
    assert scaled["name"] == deployment["metadata"]["name"]


def test_settings_of_all_files_exist() -> None:
    known = {VARIABLE_PREFIX + name.upper() for name in Settings.__dataclass_fields__}
    own = {"MEMRECALL_LISTEN", "MEMRECALL_BIND", "MEMRECALL_SERVICES"}  # of the proxies
    own |= {f"MEMRECALL_SERVICE_{number}" for number in range(1, 5)} | {"MEMRECALL_SERVICE_"}
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            names = set(re.findall(r"MEMRECALL_[A-Z_0-9]+", file.read_text("utf-8")))
            assert names <= known | own, file


def test_image_is_built_from_the_wheel_in_two_stages_and_runs_without_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(images) == 2
    check_each(images, lambda image: _assert_pinned(image))
    final = text.rpartition("\nFROM ")[2]
    assert "COPY --from=build" in final
    assert "COPY . ." not in final
    assert re.search(r"^USER 10001", final, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/healthz", final, re.MULTILINE)
    version = re.search(
        r'^version = "(\d+\.\d+\.\d+)', (ROOT / "pyproject.toml").read_text("utf-8"), re.M
    )
    assert version is not None
    files = ("compose.yaml", *_kubernetes_paths())
    used = {image for file in files for image in walk(read(file), "image")}
    assert {i for i in used if i.startswith("memrecall:")} == {f"memrecall:{version[1]}"}


def _kubernetes_paths() -> list[str]:
    return [f"kubernetes/{file.name}" for file in MANIFESTS]


def _assert_pinned(image: str) -> None:
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+", image)


async def scrape_metrics(library: Library) -> set[str]:
    """Return the names of the series that a running service exports, also before their events."""
    async with serve_in_process(library) as service:
        client = await service.client_with_key(permissions=frozenset({Permission.OPERATOR}))
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.text, re.MULTILINE))
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    return (kinds.keys() - histograms) | parts


def metric_names(expression: str) -> set[str]:
    """Return the metrics of an expression in Prometheus' query language."""
    without_labels = re.sub(r"\{[^}]*\}|\[[^]]*\]|(?:by|without) \([^)]*\)", "", expression)
    return set(re.findall(r"[a-z_]{2,}(?![a-z_]*\s*\()", without_labels))


async def test_dashboard_and_alerts_query_metrics_that_exist(sqlite_library: Library) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "memrecall.json").read_text())
    alerts = list(walk(read("prometheus/alerts.yaml"), "expr"))
    expressions = [*walk(dashboard["panels"], "expr"), *alerts]
    assert len(expressions) > 20
    known = await scrape_metrics(sqlite_library) | OTHER_METRICS
    for expression in expressions:
        names = metric_names(expression)
        assert names, expression
        assert names <= known, expression
    used = {name for expression in expressions for name in metric_names(expression)}
    own = {name for name in known if name.startswith("memrecall_")}
    suffix = re.compile(r"_(bucket|count|sum)$")
    assert {suffix.sub("", name) for name in own} == {
        suffix.sub("", name) for name in used if name.startswith("memrecall_")
    }  # all of ours are shown
    assert metric_names('sum(rate(not_there_total{a="b"}[5m])) by (le)') == {"not_there_total"}


def test_dashboard_uses_the_provisioned_data_source() -> None:
    (source,) = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "memrecall.json").read_text())
    assert {item["uid"] for item in walk(dashboard, "datasource")} == {source["uid"]}
    (provider,) = read("grafana/provisioning/dashboards/memrecall.yaml")["providers"]
    mounts = read("compose.yaml")["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts


def test_alerts_are_those_of_the_documentation() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(groups:\n.*?)```", text, re.DOTALL)
    assert yaml.safe_load(block) == read("prometheus/alerts.yaml")


CHECKS = {
    "nginx": ("nginx", "-t", "-c", "nginx/nginx.conf"),
    "haproxy": ("haproxy", "-c", "-f", "haproxy/haproxy.cfg"),
    "caddy": ("caddy", "validate", "--adapter", "caddyfile", "--config", "caddy/Caddyfile"),
}


@pytest.mark.service
@pytest.mark.parametrize("proxy", PROXIES)
def test_proxy_accepts_its_configuration(proxy: str) -> None:
    require_program(proxy)
    *command, file = CHECKS[proxy]
    done = subprocess.run(
        [*command, str(DEPLOY / file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
