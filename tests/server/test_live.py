"""Running recalls, and the keys that can see them."""

from memrecall.scope import Permission, Scope
from memrecall.server.auth import Principal
from memrecall.server.http.context import MAX_ENDED, LiveRecalls

ANN = Scope("ann")
OPERATOR = Principal("key", None)


def test_recall_is_hidden_from_keys_with_fewer_permissions() -> None:
    recalls = LiveRecalls()
    permissions = frozenset({Permission.SENSITIVE})
    live = recalls.start(Scope("ann", "helper", permissions=permissions), "where?")
    for user, agent, allowed in (
        ("ben", "helper", permissions),
        ("ann", "helper", frozenset()),
        ("ann", "other", permissions),
    ):
        key = Principal("key", frozenset({user}), agent, permissions=allowed)
        assert recalls.running(key) == []
        assert recalls.find(key.scope(user), live.live_id) is None
    for users in (None, frozenset({"ann", "ben"})):
        for bound in (None, "helper"):
            key = Principal("key", users, bound, permissions=permissions)
            assert recalls.running(key) == [live]


def test_only_latest_ended_recalls_are_stored() -> None:
    recalls = LiveRecalls()
    started = [recalls.start(ANN, str(number)) for number in range(MAX_ENDED + 5)]
    for live in started:
        with recalls.track(live):
            pass
    assert [recalls.find(ANN, live.live_id) is not None for live in started] == [
        *[False] * 5,
        *[True] * MAX_ENDED,
    ]
