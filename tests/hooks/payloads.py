"""What the clients send, written after their public descriptions (`Client.docs` has the pages)."""

from typing import Any, NamedTuple

SESSION = "0b8e7a52-4c1f-4d8e-9a3b-2f6d1c7e5a90"
FOLDER = "/home/ann/project"


_MANUAL = {"trigger": "manual"}


class Sample(NamedTuple):
    """A documented payload, and the messages in it."""

    client: str
    event: str
    payload: dict[str, Any]
    messages: list[tuple[str, str]]
    recalls: bool = False

    @property
    def briefs(self) -> bool:
        return self.event.lower() == "sessionstart"


def samples(prompt: str, answer: str, folder: str = FOLDER) -> list[Sample]:
    """Return a payload for every event of every client."""
    claude = {
        "session_id": SESSION,
        "transcript_path": "/home/ann/.claude/projects/project/session.jsonl",
        "cwd": folder,
        "permission_mode": "default",
    }
    codex = {
        "session_id": SESSION,
        "transcript_path": None,
        "cwd": folder,
        "model": "gpt-5",
        "permission_mode": "default",
        "turn_id": "019d036d-c7fa-72d2-b6fd-78878bfe34e4",
    }
    cursor = {
        "conversation_id": SESSION,
        "generation_id": "490b90b7-a2ce-4c2c-bb76-cb77b125df2f",
        "model": "auto",
        "cursor_version": "3.20.17",
        "workspace_roots": [folder],
        "user_email": "bob@example.com",  # the binding decides the user
        "transcript_path": None,
    }
    gemini = {
        "session_id": SESSION,
        "transcript_path": "/home/ann/.gemini/tmp/session.json",
        "cwd": folder,
        "timestamp": "2026-10-14T09:30:00.000Z",
    }
    user, assistant = [("user", prompt)], [("assistant", answer)]
    stop = {"stop_hook_active": False, "last_assistant_message": answer}
    rows: list[tuple[str, str, dict[str, Any], list[tuple[str, str]]]] = [
        ("claude-code", "UserPromptSubmit", {**claude, "prompt": prompt}, user),
        ("claude-code", "Stop", {**claude, **stop}, assistant),
        ("codex", "UserPromptSubmit", {**codex, "prompt": prompt}, user),
        ("codex", "Stop", {**codex, **stop}, assistant),
        ("cursor", "beforeSubmitPrompt", {**cursor, "prompt": prompt, "attachments": []}, user),
        ("cursor", "afterAgentResponse", {**cursor, "text": answer}, assistant),
        ("gemini", "BeforeAgent", {**gemini, "prompt": prompt}, user),
        (
            "gemini",
            "AfterAgent",
            {**gemini, "prompt": prompt, "prompt_response": answer, "stop_hook_active": False},
            assistant,
        ),
        ("claude-code", "SessionStart", {**claude, "source": "startup", "model": "opus"}, []),
        ("claude-code", "PreCompact", {**claude, **_MANUAL, "custom_instructions": ""}, []),
        ("codex", "SessionStart", {**codex, "source": "resume"}, []),
        ("codex", "PreCompact", {**codex, **_MANUAL}, []),
        ("cursor", "sessionStart", {**cursor, "is_background_agent": False}, []),
        ("cursor", "preCompact", {**cursor, **_MANUAL, "context_usage_percent": 85}, []),
        ("gemini", "SessionStart", {**gemini, "source": "startup"}, []),
        ("gemini", "PreCompress", {**gemini, **_MANUAL}, []),
    ]
    return [
        Sample(client, event, {"hook_event_name": event, **payload}, messages, messages == user)
        for client, event, payload, messages in rows
    ]
