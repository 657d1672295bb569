"""Hostile bodies: too long, too deep, too many, not JSON, not told to be. Nobody is hurt."""

from __future__ import annotations

import json

import pytest

from outlive.server.bodies import check_shape
from outlive.server.limits import BODY_BYTES_MAX, BODY_VALUES_MAX, Limits
from outlive.server.problems import Problem
from tests.server.api import application

PATH = "/queues/mail/items"


async def refused(api, body, status, **more):
    got = await api.send("POST", PATH, body, **more)
    assert got.status == status, got
    assert got.code
    assert (await api.get("/queues")).document["queues"] == []
    return got


async def test_a_body_is_cut_off_while_it_streams(api):
    got = await refused(api, [b'{"payload": "'] + [b"x" * 65536] * 64, 413)
    assert str(BODY_BYTES_MAX) in got.document["detail"]


async def test_a_declared_length_is_refused_before_anything_is_read(api):
    for length in ("99999999999999", "9" * 5000):
        headers = (("content-type", "application/json"), ("content-length", length))
        await refused(api, b"{}", 413, headers=headers)


async def test_the_limit_can_be_lowered(drivers, api):
    api.app = application(drivers, bounds=Limits(body_bytes=100, failure_s=0.0))
    await refused(api, json.dumps({"payload": "x" * 100}).encode(), 413)
    assert (await api.send("POST", PATH, json.dumps({"payload": "x"}).encode())).status == 201


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("content-type", ""),),
        (("content-type", "text/plain"),),
        (("content-type", "application/x-www-form-urlencoded"),),
        (("content-type", "application/jsonp"),),
        (("content-type", "application/json; charset=utf-16"),),
        (("content-type", "application/json"), ("content-encoding", "gzip")),
        (("content-type", "application/json"), ("content-encoding", "br")),
    ],
)
async def test_what_is_not_said_to_be_plain_json_is_refused(api, headers):
    got = await refused(api, b'{"payload": 1}', 415, headers=headers)
    assert got.code == "unsupported-media-type"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=UTF-8"])
async def test_json_by_any_of_its_names_is_taken(api, kind):
    got = await api.send("POST", PATH, b'{"payload": 1}', headers=(("content-type", kind),))
    assert got.status == 201


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"\xff\xfe{}",
        b'{"payload": "\xff"}',
        b'{"payload": NaN}',
        b'{"payload": 1} x',
        b'{"payload": 1}{"payload": 2}',
        b'{"payload": "\\ud800"}',
        b'{"payload": 1, "no_such_field": 2}',
        b'{"payload": 1, "priority": "high"}',
        b'{"payload": 1, "priority": 99999999}',
        b'{"payload": 1, "priority": 1.5}',
        b'{"payload": 1, "delay": -1}',
        b'{"payload": 1, "delay": 1e300}',
        b'{"payload": 1, "delay": 1e999}',
        b'{"payload": 1, "id": ""}',
        b'{"payload": 1, "id": "a\\u0000b"}',
        b'{"payload": 1, "on_duplicate": "explode"}',
        b'{"payload": 1, "on_duplicate": "reject\\n"}',
        b'{"payload": 1, "id": "a\\n"}',
        b'{"payload": 1, "unique_key": "a\\n"}',
        b'{"payload": 1, "ordering_key": "a\\n"}',
        b'{"payload": 1, "headers": {"a\\n": "1"}}',
        b'{"payload": 1, "headers": {"a": 1}}',
        b'"text"',
        b"7",
        b"null",
        b"[]",
        b"[1]",
        b"[[]]",
        b'{"payload": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b"]" * 1000,
        b'{"payload": [' + b"0," * (BODY_VALUES_MAX + 2) + b"0]}",
        b'{"payload": "' + b'\\"' * 200_000,
        b'{"payload": "' + b'\\"' * 200_000 + b"\\",
        b"[" + b'{"payload":1},' * 1000 + b'{"payload":1}]',
        b'{"payload": ' + b"9" * 5000 + b"}",
    ],
    ids=range(40),
)
async def test_what_is_not_a_request_is_refused_and_adds_nothing(api, body):
    await refused(api, body, 400)


async def test_brackets_inside_text_are_text(api):
    for text in ("[" * 1000, '"]}' * 100, "\\" * 99, ",,,"):
        body = json.dumps({"payload": text}).encode()
        assert (await api.send("POST", PATH, body)).status == 201


def test_depth_is_counted_without_parsing():
    check_shape(b"[" * 32 + b"]" * 32)
    with pytest.raises(Problem):
        check_shape(b"[" * 33 + b"]" * 33)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "worker_id=w",
        "queues=a",
        "worker_id=w&worker_id=w&queues=a",
        "worker_id=w&queues=",
        "worker_id=w&queues=a&wait=-1",
        "worker_id=w&queues=a&wait=999",
        "worker_id=w&queues=a&wait=x",
        "worker_id=w&queues=a&wait=nan",
        "worker_id=w&queues=a&ttl=0",
        "worker_id=w&queues=a&session=%00",
        "worker_id=w/w&queues=a",
        "worker_id=w%0a&queues=a",
        "worker_id=w&queues=a%0a",
        "worker_id=w&queues=a&session=s%0a",
        "worker_id=w&queues=a&request_id=r%0a",
        "worker_id=w&queues=a&token=1",
        "worker_id=w&" + "&".join(f"queues={n}" for n in range(40)),
    ],
)
async def test_a_query_is_checked_like_a_body(api, query):
    got = await api.get("/worker/next", query)
    assert (got.status, got.code) == (400, "invalid-request")


@pytest.mark.parametrize("query", ["state=ready%0a", "state=no", "after=1%0a", "limit=501"])
async def test_a_page_is_checked_like_a_body(api, query):
    got = await api.get(PATH, query)
    assert (got.status, got.code) == (400, "invalid-request")


@pytest.mark.parametrize("name", ["a\x00b", "a\x1bb", "\u2028", "x" * 513])
async def test_a_name_in_the_path_is_checked(api, name):
    for path in (f"/queues/{name}/items", f"/items/{name}"):
        got = await api.get(path)
        assert (got.status, got.code) == (400, "invalid-request")


@pytest.mark.parametrize("path", ["/queues/", "/worker/next/", "/healthz/"])
async def test_a_path_with_one_slash_too_many_is_no_path_and_leads_nowhere(api, path):
    got = await api.get(path)
    assert (got.status, got.code) == (404, "not-found")


async def test_no_such_path_and_no_such_method(api):
    got = await api.get("/worker")
    assert (got.status, got.code) == (404, "not-found")
    for method in ("HEAD", "PUT", "DELETE", "TRACE", "OPTIONS"):
        got = await api.send(method, "/worker/next")
        assert (got.status, got.code) == (405, "method-not-allowed")
        assert got.headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"payload": "\\ud800"}', "surrogate"),
        (b'{"payload": ["\\udc00 x"]}', "surrogate"),
        (b'{"payload": "\\ud800\\u0041"}', "surrogate"),
        (b'{"payload": 1', "The body ends before its JSON does."),
        (b'{"payload": "\\\\ud800", "x', "The body ends before its JSON does."),
        (b'{"payload": 1, "priority": true}', "Expected `number`, got `bool` - at `$.priority`"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said_in_the_words_of_json(api, body, said):
    got = await refused(api, body, 400)
    assert said in got.document["detail"]


@pytest.mark.parametrize(
    ("path", "document", "said"),
    [
        (PATH, {"id": "a\nb"}, "without control characters - at `$.id`"),
        (PATH, {"on_duplicate": "no"}, "of: reject, replace, return - at `$.on_duplicate`"),
        (PATH, {"max_attempts": 1.5}, "`number` that is whole - at `$.max_attempts`"),
        ("/worker/next", {"worker_id": "a b", "queues": ["q"]}, "of A-Z, a-z, 0-9, '_', '.'"),
        ("/worker/complete", {"claim_id": "\n"}, "of printable ASCII characters"),
    ],
)
async def test_a_refusal_describes_what_is_wrong_without_a_pattern(api, path, document, said):
    got = await api.post(path, document)
    assert got.status == 400
    assert said in got.document["detail"]
    assert "regex" not in got.document["detail"]


@pytest.mark.parametrize("query", ["state=no", "after=no", "limit=x"])
async def test_a_refusal_of_a_parameter_has_no_pattern(api, query):
    assert "regex" not in (await api.get(PATH, query)).document["detail"]


async def test_names_are_as_long_as_in_python(api):
    long = "x" * 512
    got = await api.post(f"/queues/{long}/items", {"id": long, "unique_key": long})
    assert (got.status, got.document["id"]) == (201, long)
    wanted = {"worker_id": "w", "queues": [long], "session": "s"}
    claimed = (await api.post("/worker/next", wanted)).document
    assert claimed["id"] == long
    settled = await api.post("/worker/complete", {"claim_id": claimed["claim_id"]})
    assert settled.status == 200
    assert (await api.get(f"/items/{long}")).document["queue"] == long


@pytest.mark.parametrize("field", ["id", "unique_key", "ordering_key"])
async def test_a_name_is_measured_in_bytes(api, field):
    got = await api.post(PATH, {field: "é" * 300})
    assert (got.status, got.code) == (400, "invalid-request")
    assert "600 bytes" in got.document["detail"]


async def test_a_whole_surrogate_pair_is_a_character(api):
    got = await api.send("POST", PATH, b'{"payload": "\\ud83d\\ude00", "id": "i"}')
    assert got.status == 201
    assert (await api.get("/items/i")).document["payload"] == "\U0001f600"
