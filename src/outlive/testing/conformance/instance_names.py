"""Cases of names and payloads: whatever the port lets through comes back as it was."""

from __future__ import annotations

import json

from outlive.model.instance import InstanceFilter, Opened, Reply, Sent
from outlive.names import InstanceId
from outlive.testing.conformance.instance_runner import runner
from outlive.testing.conformance.lab import Lab, scenario

HOSTILE = (
    "it's; DROP TABLE instances; --",
    '"quoted" \\ back',
    "a/b/../c",
    "%_*?[x]",
    " leading and trailing ",
    "UPPER",
    "upper",
    "\U0001f511 schlüssel ключ",
    "e\u0301",
    "\u00e9",
    "{}:$1:@x",
    "0",
    "00",
    "null",
    "i" * 512,
)


class NameCases:
    """Ids, names and texts that a careless driver takes for something else."""

    @scenario
    async def test_any_id_is_an_id(self, lab: Lab) -> None:
        a = await runner(lab)
        for id_ in HOSTILE:
            await a.put(id_, input=json.dumps(id_))
        assert await a.list() == list(HOSTILE)
        for claimed in await a.claim(len(HOSTILE)):
            assert json.loads(claimed.input) == claimed.id
            assert await a.send(claimed.id, "m", json.dumps(claimed.id)) is Sent.SENT
            (letter,) = await a.mail(claimed.id)
            assert json.loads(letter.payload) == claimed.id
            await a.finish(claimed, outcome=json.dumps(claimed.id))
            assert json.loads((await a.record(claimed.id)).outcome or "") == claimed.id
        for id_ in HOSTILE:
            assert await a.purge(id_) is Opened.CHANGED
        assert await a.list() == []

    @scenario
    async def test_any_definition_is_a_definition(self, lab: Lab) -> None:
        a = await runner(lab)
        for number, name in enumerate(HOSTILE):
            await a.put(f"i{number}", name=name)
        for number, name in enumerate(HOSTILE):
            claimed = await a.claim_one(names=(name,))
            assert (claimed.id, claimed.name) == (f"i{number}", name)
            assert await a.list(names=(name,)) == [f"i{number}"]

    @scenario
    async def test_any_message_is_a_message(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        for text in HOSTILE:
            assert await a.send("i", text, json.dumps(text), kind=text, name=text) is Sent.SENT
        letters = await a.mail("i")
        assert [(it.id, it.kind, it.name, json.loads(it.payload)) for it in letters] == [
            (text, text, text, text) for text in HOSTILE
        ]
        replies = tuple(Reply(text, json.dumps(text)) for text in HOSTILE)
        await a.advance(held, replies=replies, consumed=tuple(it.number for it in letters))
        for text in HOSTILE:
            assert await a.instances.reply(InstanceId("i"), text) == json.dumps(text)
        assert await a.mail("i") == []

    @scenario
    async def test_texts_come_back_as_they_were(self, lab: Lab) -> None:
        a = await runner(lab)
        # Not normal in any way: spaces, order, escapes and numbers stay as they were written.
        text = '{"b" : 1.0,\n"a":"\\u00e9\\u0000\\ud83d\\ude00", "big":12345678901234567890}'
        held = await a.own("i", input=text, headers=text, history=(f"[{text}]",))
        held = await a.advance(held, events=f"[{text}]", custom=text)
        found = await a.record("i")
        assert (found.input, found.headers, found.custom) == (text, text, text)
        assert [row.events for row in await a.history("i")] == [f"[{text}]"] * 2
        await a.send("i", "m", text)
        assert [letter.payload for letter in await a.mail("i")] == [text]
        await a.finish(held, outcome=text)
        assert (await a.record("i")).outcome == text

    @scenario
    async def test_large_texts_come_back_whole(self, lab: Lab) -> None:
        a = await runner(lab)
        text = json.dumps("x" * 1_000_000)
        held = await a.own("i", input=text)
        await a.send("i", "m", text)
        held = await a.advance(held, events=f"[{text}]", custom=text)
        await a.advance(held, release=True)
        claimed = await a.claim_one()
        assert (claimed.input, claimed.custom) == (text, text)
        assert [letter.payload for letter in claimed.letters] == [text]
        first, _ = await a.history("i")
        assert first.events == f"[{text}]"


class NamespaceCases:
    """Namespaces are stores of their own."""

    @scenario
    async def test_namespaces_do_not_see_each_other(self, lab: Lab) -> None:
        one = await runner(lab, "one", "n1")
        two = await runner(lab, "two", "n2")
        held = await one.own("i", input="1")
        await one.put("free")
        await two.put("i", input="2")
        await two.send("i", "m")
        assert (await one.record("i")).input == "1"
        assert (await two.record("i")).input == "2"
        assert await one.mail("i") == []
        assert not await two.exists("free")
        assert await two.send("free", "m") is Sent.NOT_FOUND
        assert await two.terminate("free") is Opened.NOT_FOUND
        assert await two.suspend("free") is Opened.NOT_FOUND
        assert await two.purge("free") is Opened.NOT_FOUND
        assert not (await two.commit(held)).ok
        assert not await two.release(held)
        assert await two.list() == ["i"]
        assert sum((await two.instances.count(InstanceFilter())).values()) == 1
        assert await two.ids() == ["i"]
        assert await two.reclaim() == []
        assert await one.ids() == ["free"]

    @scenario
    async def test_tending_stays_in_its_namespace(self, lab: Lab) -> None:
        one = await runner(lab, "one", "n1")
        two = await runner(lab, "two", "n2")
        await one.put_ended("i", retention=0)
        await lab.advance(0.01)
        assert await two.instances.tend(limit=10) == 0
        await one.instances.tend(limit=10)
        assert not await one.exists("i")
