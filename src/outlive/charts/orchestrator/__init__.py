"""Many machines in one process: groups, lanes, requests, and what became of every event.

How it works, in the order in which an event meets it:

- A **machine** is a small object with a mailbox. It has no task, no timer and no dict of its own
  while nothing happens to it, so that a hundred thousand idle ones cost only their memory.
- ``send`` puts the event into the mailbox. A machine that was at rest joins a **lane**: a queue of
  machines that have something to do. A machine is in one lane at most, and its events stay in its
  mailbox, so that however the number of lanes changes, its events keep their order.
- Each event loop that runs machines has its own **lanes**. One plain callback per turn of the loop
  visits them in rotation and lets each handle a bounded slice of events; then everybody else on the
  loop has their turn. The number of lanes is therefore the share of a turn that machines may take.
  When machines wait too long in their lanes the number doubles; when few lanes are used, it halves.
- An action that awaits something takes its machine out of its lane. The others do not notice. The
  machine comes back when the action has ended.
- Only the thread of its loop touches a machine. Whoever sends from elsewhere leaves a note in the
  inbox of the lanes, and rings the loop's bell once for as many notes as gather meanwhile.
- A **group** holds its machines by reference. Nothing is ever looked up by taking an id apart, so
  that no id, however hostile, reaches across. Releasing a group ends all of its machines and
  answers whoever waits for one of them.
- A **request** is an event with a sender who waits. Along a chain of requests, one that comes back
  to a machine which is waiting for its answer is handled at once, because that machine cannot go on
  before it is: nobody waits for himself.
"""

from outlive.charts.orchestrator.group import Group
from outlive.charts.orchestrator.health import Health
from outlive.charts.orchestrator.letters import DeadLetter
from outlive.charts.orchestrator.machine import Machine
from outlive.charts.orchestrator.metrics import Metrics
from outlive.charts.orchestrator.orchestrator import Orchestrator, orchestrator, shared

__all__ = [
    "DeadLetter",
    "Group",
    "Health",
    "Machine",
    "Metrics",
    "Orchestrator",
    "orchestrator",
    "shared",
]
