"""Settings: an argument beats the environment, which beats the file."""

from dataclasses import fields
from pathlib import Path

import pytest

from memrecall.errors import InvalidArgument
from memrecall.settings import Settings, load_settings

from .cases import check_each


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, "utf-8")
    return file


def test_arguments_override_environment_and_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'db = "file.db"\nembedder = "none"\nmax_seconds = 3\n')
    environment = {"MEMRECALL_DB": "env.db", "MEMRECALL_MAX_SECONDS": "4.5"}
    loaded = load_settings({"db": "argument.db"}, environment, file)
    assert loaded.settings.db == "argument.db"
    assert loaded.settings.max_seconds == 4.5
    assert loaded.settings.embedder == "none"
    assert loaded.origins == {
        "db": "argument", "max_seconds": "environment", "embedder": str(file)
    }  # fmt: skip


def test_empty_variable_is_unset(tmp_path: Path) -> None:
    loaded = load_settings({}, {"MEMRECALL_DB": ""}, write(tmp_path, 'db = "file.db"'))
    assert loaded.settings.db == "file.db"


INVALID_SETTINGS = (
    ({"MEMRECALL_MAX_SECONDS": "soon"}, "max_seconds = 'soon' (from environment)"),
    ({"MEMRECALL_MAX_SECONDS": "-1"}, "must be above 0"),
    ({"MEMRECALL_LOCK_TIMEOUT": "3"}, "X-Memrecall-Deadline"),
    ({"MEMRECALL_SNAPSHOTS": "perhaps"}, "snapshots"),
    ({"MEMRECALL_DURABILITY": "none"}, "durability 'none'"),
    ({"MEMRECALL_DURABILITY": "some"}, "durability 'some' is not known. Use full or normal"),
    ({"MEMRECALL_MODEL_TIMEOUT": "0"}, "model_timeout = '0' (from environment) must be above"),
    ({"MEMRECALL_CONFIG": "/nowhere/config.toml"}, "/nowhere/config.toml"),
    ({"MEMRECALL_EMBEDER": "hash"}, "Did you mean MEMRECALL_EMBEDDER?"),
    ({"MEMRECALL_RUNS_DIR": "/r"}, "the setting MEMRECALL_RUNS_DIR was removed. Set data_dir"),
    ({"MEMRECALL_RERANKER": "a"}, "was removed. Remove it: a search has only its own"),
    ({"MEMRECALL_TELEMETRY": "1"}, "was removed. Remove it: spans are no longer exported"),
    ({"MEMRECALL_SWEEP_HOURS": "24"}, 'sweep = {"hours": 24'),
    ({"MEMRECALL_PAGE_MB": "8"}, "remove it"),
)


def test_invalid_value_is_named_in_error() -> None:
    def check(case: tuple[dict[str, str], str]) -> None:
        environment, message = case
        with pytest.raises(InvalidArgument) as failure:
            load_settings({}, environment)
        assert message in str(failure.value)

    check_each(INVALID_SETTINGS, check)


def test_data_folder_defaults_to_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_settings({}, {}).settings.data_folder() == tmp_path / "memrecall"
    assert load_settings({}, {"MEMRECALL_DATA_DIR": "/r"}).settings.data_folder() == Path("/r")


def test_variables_of_other_programs_are_ignored() -> None:
    names = ("HOOKS", "USER", "SERVICE_HOST", "PORT_8765_TCP", "LISTEN", "TEST_ENGINES", "SERVICES")
    assert load_settings({}, {f"MEMRECALL_{name}": "x" for name in names}).origins == {}
    load_settings({}, {"MEMRECALL_RUNS_DIR": ""})  # unset


def test_settings_are_few() -> None:
    assert len(fields(Settings)) <= 40


def test_unknown_setting_in_file_is_rejected(tmp_path: Path) -> None:
    for text, message in (
        ('databse = "x"', r"'databse'.*`memrecall doctor --json` lists all"),
        ("snapshot = true", "Did you mean snapshots?"),
        ("chat_recalls = 3", "the setting 'chat_recalls' in .* was removed"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            load_settings({}, {}, write(tmp_path, text))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        load_settings({}, {}, write(tmp_path, "not toml"))


def test_keys_and_passwords_are_redacted() -> None:
    url = "postgresql://me:hunter2@db.example/x"
    loaded = load_settings({"db": url}, {"MEMRECALL_API_KEY": "sk-secret"})
    assert loaded.settings.api_key == "sk-secret"
    for text in (str(loaded.settings.redacted()), repr(loaded.settings)):
        assert "sk-secret" not in text
        assert "hunter2" not in text
    assert loaded.settings.redacted()["db"] == "postgresql://me:***@db.example/x"
