"""A chart that is wrong is refused once, with everything that is wrong with it."""

from __future__ import annotations

import copy
import json
import warnings

import pytest

from outlive.charts import Chart, ChartWarning
from outlive.charts import document as documents
from outlive.errors import ChartError, ConfigurationError, InvalidChart, UsageError

GOOD = {
    "id": "m",
    "initial": "a",
    "states": {"a": {"on": {"GO": {"target": "b", "guard": "ok"}}}, "b": {"entry": "note"}},
}


def problems(document, **implementations) -> dict[str, str]:
    with pytest.raises(InvalidChart) as refused:
        Chart.load(document, **implementations)
    return {problem.pointer: problem.message for problem in refused.value.problems}


def loaded(document, **implementations) -> Chart:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChartWarning)
        return Chart.load(document, **{"missing": True, **implementations})


def warned(document, **implementations) -> dict[str, str]:
    chart = loaded(document, **implementations)
    return {problem.pointer: problem.message for problem in chart.warnings}


def test_everything_wrong_is_named_at_once():
    found = problems(
        {
            "initial": "aa",
            "colour": "red",
            "states": {
                "a": {"on": {"GO": {"targt": "b"}, "RUN": "c"}, "entry": 5},
                "b": {"id": "same", "type": "paralel"},
                "d": {"id": "same", "invoke": {}, "after": {"soon": "a"}},
            },
        }
    )
    assert set(found) == {
        "/colour",
        "/initial",
        "/states/a/entry",
        "/states/a/on/GO/targt",
        "/states/a/on/RUN",
        "/states/b/type",
        "/states/d/after/soon",
        "/states/d/id",
        "/states/d/invoke",
    }
    assert "did you mean 'target'?" in found["/states/a/on/GO/targt"]
    assert "did you mean 'parallel'?" in found["/states/b/type"]
    assert "did you mean 'a'?" in found["/initial"]


def test_names_without_an_implementation_are_problems():
    found = problems(GOOD, guards={"okay": lambda: True}, actions={})
    assert "guard 'ok' is not implemented" in found["/states/a/on/GO/guard"]
    assert "did you mean 'okay'?" in found["/states/a/on/GO/guard"]
    assert "action 'note' is not implemented" in found["/states/b/entry"]


def test_names_may_be_left_without_an_implementation():
    assert loaded(GOOD).begin()[0].value == "a"


def test_implementations_that_nothing_names_are_warned_of():
    said = Chart.load(
        GOOD,
        guards={"ok": lambda: True, "spare": lambda: True},
        actions={"note": lambda: None},
        services={"job": lambda: None},
    ).warnings
    assert ["spare" in str(each) or "job" in str(each) for each in said] == [True, True]


@pytest.mark.parametrize(
    ("state", "pointer"),
    [
        ({"initial": "x", "states": {"x": {"on": {"E": "y.z"}}}}, "/states/x/on/E"),
        ({"initial": "x", "states": {"x": {"on": {"E": "#no"}}}}, "/states/x/on/E"),
        ({"initial": "x", "states": {"x": {}}, "on": {"E": "x"}}, "/on/E"),
        ({"states": {"x": {}}}, ""),
        ({"initial": "x"}, "/initial"),
        ({"type": "parallel", "initial": "y", "states": {"x": {}}}, "/initial"),
        ({"type": "compound"}, "/type"),
        ({"type": "history"}, ""),
        ({"initial": "x", "states": {"x": {"on": {"": "x"}, "entry": {}}}}, "/states/x/entry"),
        ({"initial": "x", "states": {"x": []}}, "/states/x"),
        ({"initial": "x", "states": {"x": {"on": []}}}, "/states/x/on"),
        ({"initial": "x", "states": {"x": {"tags": [1]}}}, "/states/x/tags/0"),
        ({"context": []}, "/context"),
        ({"initial": "x", "states": {"x": {"always": {"guard": {"params": {}}}}}},
         "/states/x/always/guard"),
        ({"initial": "x", "states": {"x/y~": {"entry": 1}}}, "/states/x~1y~0/entry"),
    ],
)  # fmt: skip
def test_problems_say_where(state, pointer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChartWarning)
        assert pointer in problems(state, missing=True)


@pytest.mark.parametrize(
    ("targets", "together"),
    [
        (["#m.p.l.y", "#m.p.r.y"], True),
        (["#m.p.l.x", "#m.p.l.y"], False),
        (["#m.p", "#m.p.l.y"], False),
        (["#m.a", "#m.p"], False),
        (["#m.a", "#m.a"], False),
    ],
)
def test_targets_that_exclude_each_other_are_refused(targets, together):
    region = {"initial": "x", "states": {"x": {}, "y": {}}}
    document = {
        "id": "m",
        "initial": "a",
        "states": {
            "a": {"on": {"GO": {"target": targets}}},
            "p": {"type": "parallel", "states": {"l": region, "r": region}},
        },
    }
    if together:
        chart = loaded(document)
        after, _ = chart.step(chart.begin()[0], chart.event("GO"))
        assert after.value == {"p": {"l": "y", "r": "y"}}
    else:
        assert "cannot be active together" in problems(document)["/states/a/on/GO"]


def test_circles_without_a_guard_are_refused():
    states = {"a": {"always": "b"}, "b": {"always": [{"target": "a"}]}, "c": {}}
    found = problems({"id": "m", "initial": "c", "states": states})
    assert "m.a -> m.b -> m.a" in found["/states/a/always"]
    states["b"]["always"][0]["guard"] = "ok"
    loaded({"initial": "c", "states": states})


def test_states_that_nothing_leads_to_are_warned_of():
    states = {
        "a": {"on": {"E": "#deep"}},
        "b": {"initial": "c", "states": {"c": {}, "d": {"id": "deep"}}},
        "lost": {"initial": "x", "states": {"x": {}}},
    }
    found = warned({"initial": "a", "states": states})
    assert set(found) == {"/states/lost", "/states/b/states/c"}


def test_functions_are_judged_when_the_chart_is_loaded():
    async def slow() -> bool:
        return True

    def painted(context: object, colour: str) -> None: ...

    found = problems(GOOD, guards={"ok": slow}, actions={"note": painted})
    assert "is async" in found["/states/a/on/GO"]
    assert "has unknown parameters 'colour'" in found["/states/b/entry"]


def test_guards_in_a_circle_are_refused():
    from outlive.charts import not_

    found = problems(GOOD, guards={"ok": not_("ok")}, actions={"note": []})
    assert "in a cycle" in found["/states/a/on/GO"]


OLD = {
    "id": "old",
    "initial": "a",
    "strict": True,
    "states": {
        "a": {
            "onEntry": "greet",
            "activities": ["beep"],
            "on": {
                "GO": {"target": "b", "cond": "ok", "in": "#old.a"},
                "STAY": {"target": "a", "internal": False},
                "done.invoke.job": "b",
            },
            "invoke": {"src": {"type": "job"}, "id": "job", "data": {"x": 1}},
            "after": [{"delay": 100, "target": "b"}],
        },
        "b": {"type": "final", "data": {"y": 2}},
    },
}


def test_spellings_of_xstate_4_are_understood_with_a_warning():
    with pytest.warns(ChartWarning) as said:
        chart = Chart.load(copy.deepcopy(OLD), missing=True, guards={"ok": lambda: True})
    words = " ".join(str(each.message) for each in said)
    for old in (
        "strict",
        "onEntry",
        "activities",
        "cond",
        "internal",
        "'in'",
        "done.invoke",
        "src",
    ):
        assert old.strip("'") in words
    snapshot, _ = chart.begin()
    assert set(snapshot.children) == {"job", "1.old.a"}
    assert snapshot.children["job"].input == {"x": 1}
    after, _ = chart.step(snapshot, chart.event("GO"))
    assert (after.value, after.status) == ("b", "done")
    assert set(snapshot.next_events) == {
        "GO", "STAY", "xstate.done.actor.job", "xstate.after.100.old.a"
    }  # fmt: skip


def test_a_document_may_be_text_or_a_file(tmp_path):
    path = tmp_path / "chart.json"
    path.write_text(json.dumps(GOOD))
    for source in (json.dumps(GOOD), path, str(path), json.dumps(GOOD).encode()):
        assert Chart.load(source, missing=True).id == "m"


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Chart.load(tmp_path / "nothing.json")
    with pytest.raises(UsageError, match="not valid JSON"):
        Chart.load("{")
    with pytest.raises(UsageError, match="a JSON object"):
        Chart.load("[]")


def test_documents_have_limits(monkeypatch):
    deep: dict = {}
    for _ in range(documents.DEPTH_MAX):
        deep = {"initial": "x", "states": {"x": deep}}
    with pytest.raises(UsageError, match="deeper"):
        Chart.load(deep)
    monkeypatch.setattr(documents, "DOCUMENT_BYTES_MAX", 10)
    with pytest.raises(UsageError, match="at most 10"):
        Chart.load(json.dumps(GOOD))


@pytest.mark.parametrize(
    ("states", "pointer"),
    [
        ({"h": {"type": "history", "target": "h"}}, "h"),
        ({"h": {"type": "history", "target": "i"}, "i": {"history": "deep", "target": "h"}}, "i"),
        (
            {"h": {"type": "history", "target": "c"}, "c": {"initial": "d", "states": {"d": {}}}},
            None,
        ),
        (
            {
                "h": {"type": "history", "target": "c"},
                "c": {"initial": "d", "states": {"d": {"type": "history", "target": "#p.h"}}},
            },
            "h",
        ),
    ],
)
def test_a_history_state_that_leads_back_to_itself_is_refused(states, pointer):
    document = {
        "initial": "p",
        "states": {"p": {"id": "p", "initial": "q", "states": {"q": {}, **states}}},
    }
    if pointer is None:
        assert loaded(document)
    else:
        assert f"/states/p/states/{pointer}" in problems(document)


def test_an_initial_state_that_is_a_history_without_a_target_is_refused():
    document = {"initial": "h", "states": {"a": {}, "h": {"type": "history"}}}
    assert "leads back" in problems(document)["/states/h"]


def test_a_long_line_of_history_states_is_refused():
    line = {f"h{n}": {"type": "history", "target": f"h{n + 1}"} for n in range(2000)}
    states = {"q": {}, **line, "h2000": {"type": "history", "target": "q"}}
    document = {"initial": "p", "states": {"p": {"initial": "q", "states": states}}}
    assert "too many" in problems(document)["/states/p/states/h0"]


def test_a_long_line_of_eventless_transitions_is_judged_soon():
    count = 2000
    states = {f"s{n}": {"always": f"s{n + 1}"} for n in range(count)}
    assert loaded({"initial": "s0", "states": {**states, f"s{count}": {}}})
    around = {**states, f"s{count}": {"always": "s1"}}
    assert list(problems({"initial": "s0", "states": around})) == ["/states/s1/always"]


def test_numbers_too_long_to_be_read_are_names():
    long = "9" * 5000
    assert loaded({"initial": "a", "states": {"a": {}, long: {}}})
    assert f"/states/a/after/{long}" in problems(
        {"initial": "a", "states": {"a": {"after": {long: "b"}}, "b": {}}}
    )
    order = {"type": "parallel", "states": {"b": {}, "4294967295": {}, "4294967294": {}, "1": {}}}
    assert [node.key for node in loaded(order).nodes[1:]] == ["1", "4294967294", "b", "4294967295"]


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "xstate.spawnChild", "params": {"src": []}},
        {"type": "xstate.stopChild", "params": {"id": {}}},
        {"type": "xstate.cancel", "params": {"id": 5}},
        {"type": "xstate.raise", "params": {"event": "GO", "id": {"a": 1}, "delay": 1}},
        {"type": "xstate.raise", "params": {"event": 5}},
        {"type": "xstate.raise", "params": {"event": "*"}},
        {"type": "xstate.assign", "params": {"assignment": 5}},
    ],
)
def test_actions_that_are_written_out_wrong_are_refused(entry):
    assert list(problems({"entry": [entry]})) == ["/entry"]


def test_guards_that_are_written_out_wrong_are_refused():
    def guarded(guard) -> dict:
        return {"initial": "a", "states": {"a": {"on": {"GO": {"guard": guard}}}}}

    assert "needs a 'guard'" in problems(guarded({"type": "not"}))["/states/a/on/GO"]
    assert loaded(
        guarded({"type": "and", "guards": "ready"}), missing=False, guards={"ready": bool}
    )


def test_parts_that_a_document_shares_count_in_every_place():
    part: dict = {}
    for _ in range(60):
        part = {"a": part, "b": part}
    with pytest.raises(UsageError, match="values"):
        Chart.load({"meta": part})


@pytest.mark.parametrize(
    ("source", "error"), [("a\0b", ConfigurationError), ('{"id": "\ud800"}', UsageError)]
)
def test_texts_that_are_none_are_refused(source, error):
    with pytest.raises(error):
        Chart.load(source)


def test_a_delay_beyond_all_numbers_is_refused():
    document = {"initial": "a", "states": {"a": {"after": {"late": "b"}}, "b": {}}}
    assert "/states/a/after/late" in problems(document, delays={"late": 10**400})


def test_a_context_that_is_no_mapping_is_an_error_of_the_start():
    assert Chart.load({"context": lambda: None}).begin()[0].context == {}
    with pytest.raises(ChartError, match="must return a mapping, not 5"):
        Chart.load({"context": lambda: 5}).begin()
