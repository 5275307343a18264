"""Settings: an argument beats the environment, which beats the file."""

from pathlib import Path

import pytest

from memrecall.errors import InvalidArgument
from memrecall.settings import load_settings

from .cases import check_each


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, "utf-8")
    return file


def test_arguments_override_environment_and_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'db = "file.db"\nembedder = "none"\nlock_timeout = 3\n')
    environment = {"MEMRECALL_DB": "env.db", "MEMRECALL_LOCK_TIMEOUT": "4.5"}
    loaded = load_settings({"db": "argument.db"}, environment, file)
    assert loaded.settings.db == "argument.db"
    assert loaded.settings.lock_timeout == 4.5
    assert loaded.settings.embedder == "none"
    assert loaded.origins == {
        "db": "argument", "lock_timeout": "environment", "embedder": str(file)
    }  # fmt: skip


def test_empty_variable_is_unset(tmp_path: Path) -> None:
    loaded = load_settings({}, {"MEMRECALL_DB": ""}, write(tmp_path, 'db = "file.db"'))
    assert loaded.settings.db == "file.db"


INVALID_SETTINGS = (
    ({"MEMRECALL_LOCK_TIMEOUT": "soon"}, "lock_timeout = 'soon' (from environment)"),
    ({"MEMRECALL_LOCK_TIMEOUT": "-1"}, "must be above 0"),
    ({"MEMRECALL_SNAPSHOTS": "perhaps"}, "snapshots"),
    ({"MEMRECALL_QUERY_MAP": "perhaps"}, "query_map"),
    ({"MEMRECALL_DURABILITY": "none"}, "durability 'none'"),
    ({"MEMRECALL_TOOL_CALLS": "xml"}, "tool_calls 'xml' is not known. Use native or json"),
    ({"MEMRECALL_MODEL_TIMEOUT": "0"}, "model_timeout = '0' (from environment) must be above"),
    ({"MEMRECALL_CONFIG": "/nowhere/config.toml"}, "/nowhere/config.toml"),
)


def test_invalid_value_is_named_in_error() -> None:
    def check(case: tuple[dict[str, str], str]) -> None:
        environment, message = case
        with pytest.raises(InvalidArgument) as failure:
            load_settings({}, environment)
        assert message in str(failure.value)

    check_each(INVALID_SETTINGS, check)


def test_runs_folder_defaults_to_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MEMRECALL_CONFIG", raising=False)
    assert Path(load_settings({}, {}).settings.runs_dir).name == "runs"
    assert load_settings({}, {"MEMRECALL_RUNS_DIR": "/r"}).settings.runs_dir == "/r"


def test_query_map_is_on_unless_turned_off(tmp_path: Path) -> None:
    assert load_settings({}, {}, write(tmp_path, "")).settings.query_map is True
    assert load_settings({}, {"MEMRECALL_QUERY_MAP": "false"}).settings.query_map is False
    assert load_settings({}, {}, write(tmp_path, "query_map = false")).settings.query_map is False


def test_unknown_setting_in_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'databse'"):
        load_settings({}, {}, write(tmp_path, 'databse = "x"'))
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
