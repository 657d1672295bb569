"""``GET /hosts``: the processes of a namespace, over HTTP."""

from __future__ import annotations

from outlive.model.bearer import Scope
from tests.server.api import make_token

NEXT = {"worker_id": "w1", "queues": ["mails"], "session": "s1"}


async def test_hosts_and_workers_are_listed_with_what_they_own(api, hosts):
    await hosts["shop"].leases.acquire("printer")
    await api.post("/queues/mails/items", {"payload": 1})
    assert (await api.post("/worker/next", NEXT)).status == 200
    server, worker = (await api.get("/hosts")).document["hosts"]
    assert (server["id"], server["kind"], server["leases"]) == (hosts["shop"].id, "host", 1)
    assert server["alive"]
    assert not server["draining"]
    assert (worker["name"], worker["kind"], worker["jobs"]) == ("w1", "http-worker", 1)
    assert worker["pid"] is None
    one = (await api.get("/hosts", "limit=1")).document["hosts"]
    assert [each["id"] for each in one] == [server["id"]]


async def test_hosts_are_those_of_the_namespace_and_need_the_scope(api, foreign, drivers, hosts):
    (found,) = (await foreign.get("/hosts")).document["hosts"]
    assert found["id"] == hosts["other"].id
    _, token = await make_token(drivers["shop"], "shop", Scope.WORK)
    assert (await api.with_token(token).get("/hosts")).code == "forbidden"
