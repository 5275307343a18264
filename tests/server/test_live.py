"""Running recalls, and the scopes that can see them."""

from memrecall.agent.trace_events import StartEvent
from memrecall.scope import Permission, Scope
from memrecall.server.http.context import MAX_ENDED, LiveRecalls

ANN = Scope("ann")


def test_recall_is_listed_while_running_and_found_afterwards() -> None:
    recalls = LiveRecalls()
    live = recalls.start(ANN, "where?")
    with recalls.track(live):
        live.record(StartEvent())
        assert recalls.running(ANN) == [live]
    assert recalls.running(ANN) == []
    assert recalls.find(ANN, live.live_id) is live
    assert (live.has_ended, len(live.events), live.result) == (True, 1, None)


def test_recall_is_hidden_from_scopes_with_fewer_permissions() -> None:
    recalls = LiveRecalls()
    sees_more = Scope("ann", "helper", permissions=frozenset({Permission.SENSITIVE}))
    live = recalls.start(sees_more, "where?")
    scopes = [
        Scope("ben", "helper", permissions=sees_more.permissions),
        Scope("ann", "helper"),
        Scope("ann", "other", permissions=sees_more.permissions),
    ]
    for scope in scopes:
        assert recalls.running(scope) == []
        assert recalls.find(scope, live.live_id) is None
    for scope in (sees_more, Scope("ann", permissions=sees_more.permissions)):
        assert recalls.running(scope) == [live]


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
