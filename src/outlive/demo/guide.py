"""What to type into several terminals, and what to watch for. Text alone."""

from __future__ import annotations

_GUIDE = """\
Several processes compete for one lock on {store}.

1. One wins, the others are refused
   Start these within a few seconds of each other, each in a terminal of its own:

     outlive demo compete --instance us-east-1 --region us-east{flag}
     outlive demo compete --instance eu-west-1 --region eu-west{flag}
     outlive demo compete --instance ap-south-1 --region ap-south{flag}

   Watch for: one LOCK ACQUIRED with its token; LOCK ACQUISITION FAILED elsewhere, naming the
   owner and its region. While the winner works, renewals and version grow and the token stays.

2. All at the same instant, in one terminal
     outlive demo compete --race 3{flag}

   Watch for: one winner, whatever you do.

3. The winner dies, another takes over
   Kill the winner with kill -9 while it works, and start another one. It is refused until
   the ttl has passed; then it wins. Or let the losers wait, and have the winner killed:

     outlive demo compete --race 3 --crash{flag}

   Watch for: a greater token, and "taken over from". Never do two instances own the lock.

4. From the side, in one more terminal
     outlive lease watch {key}{flag}
     outlive lease show {key} --raw{flag}
     outlive lease history {key}{flag}

   Watch for: version and end move with each renewal, the token only with a new owner.

5. By force
     outlive lease break {key} --reason "I want to see what happens"{flag}

   Watch for: LOCK LOST at the winner, at its next renewal, with your reason, and exit code 76.
"""


def guide(store: str, key: str, *, flag: str = "") -> str:
    """The guide for ``store``; ``flag`` is what names it on a command line."""
    return _GUIDE.format(store=store, key=key, flag=flag)
