"""The row of a flow as its owner knows it, and the commits that change it. Pure.

Owns the version that the next commit makes, and the ids of commits: one owner makes one commit of a
version, and sends it until its outcome is known. What is committed beside a decision is told apart
by the end of its id.
"""

from __future__ import annotations

from msgspec.structs import replace

from outlive.flows.decision import Decision
from outlive.flows.events import Event, encode_events
from outlive.model.instance import ClaimedInstance, Commit, InstanceStatus, Reply

_RUNNING = InstanceStatus.RUNNING


class FlowRow:
    """One row, from the claim that made it ours. ``noted`` says whether a commit of ours stands.

    What is claimed is due, and stays so until a commit says what the flow waits for. ``stored`` are
    the attributes that the store has.
    """

    __slots__ = (
        "_marked",
        "attributes",
        "base",
        "custom",
        "headers",
        "id",
        "name",
        "noted",
        "parent",
        "stored",
        "token",
        "version",
    )

    def __init__(self, claimed: ClaimedInstance) -> None:
        self.id = claimed.id
        self.name = claimed.name
        self.token = claimed.token
        self.version = claimed.version
        self.base = claimed.base
        self.parent = claimed.parent
        self.headers = claimed.headers
        self.custom = claimed.custom
        self.attributes = self.stored = claimed.attributes
        # Attributes that the next commit writes though the flow's code did not ask for it.
        self._marked: str | None = None
        self.noted = False

    def mark(self, attributes: str) -> None:
        """Write these attributes with the next commit."""
        self.attributes = self._marked = attributes

    @property
    def marked(self) -> bool:
        """Whether attributes are to be written that no commit has."""
        return self._marked is not None

    def decided(
        self,
        decision: Decision,
        events: tuple[Event, ...],
        *,
        consumed: tuple[int, ...],
        replies: tuple[Reply, ...],
        due_at_us: int | None,
    ) -> Commit:
        """The commit of a decision.

        Args:
            decision: What was decided.
            events: Those of its events that are not recorded yet.
            consumed: The letters that led to it.
            replies: Those to its senders that the code had no part in.
            due_at_us: When the flow is to be looked at again.
        """
        token, version = self.token, self.version + 1
        commit = Commit(
            id=self.id,
            token=token,
            version=version,
            commit=f"{token}.{version}",
            events=encode_events(events),
            due_at_us=due_at_us,
            status=decision.ended or _RUNNING,
            outcome=decision.outcome,
        )
        if decision.plain and self._marked is None and not (consumed or replies):
            # The usual one.
            return commit
        return replace(
            commit,
            custom=decision.custom,
            attributes=self._marked if decision.attributes is None else decision.attributes,
            consumed=consumed,
            sends=decision.sends,
            starts=decision.starts,
            jobs=decision.jobs,
            replies=(*decision.replies, *replies) if replies else decision.replies,
            restart=decision.restart,
        )

    def beside(
        self,
        *,
        due_at_us: int | None,
        events: tuple[Event, ...] = (),
        attributes: str | None = None,
        release: bool = False,
        kind: str = "",
    ) -> Commit:
        """A commit that no decision of the code stands behind; its id ends with ``kind``."""
        return Commit(
            id=self.id,
            token=self.token,
            version=self.version + 1,
            commit=f"{self.token}.{self.version + 1}{kind}",
            events=encode_events(events),
            due_at_us=due_at_us,
            attributes=self._marked if attributes is None else attributes,
            release=release,
        )

    def written(self, commit: Commit) -> None:
        """The commit stands."""
        self.version = commit.version
        self.noted = True
        if commit.custom is not None:
            self.custom = commit.custom
        if commit.attributes is not None:
            self.attributes = self.stored = commit.attributes
            self._marked = None
