"""The stores that ``outlive configure`` knows: their addresses, and how each is told who asks.

Data alone. A store stands here whether or not its driver is installed; trying it says which.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlive.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One way to be let in.

    ``setting`` is what refers to the variable that holds the secret: ``url`` for the whole URL,
    otherwise the name of a driver's option; ``None`` where the file needs no secret.
    """

    name: str
    says: str
    setting: str | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One kind of store.

    ``schemes`` are those its URLs may begin with besides its name. ``default`` is a URL to begin
    with, ``None`` where nobody can guess.
    """

    name: str
    says: str
    form: str
    default: str | None
    access: tuple[Access, ...]
    schemes: tuple[str, ...] = ()

    def serves(self, scheme: str) -> bool:
        """Whether URLs of this scheme are its own."""
        return scheme == self.name or scheme in self.schemes


_OPEN = Access(name="none", says="no secret is needed")


def _whole_url(variable: str) -> Access:
    return Access(
        name="url",
        says="the whole URL, password included, in a variable",
        setting="url",
        variable=variable,
    )


def _azure(service: str) -> tuple[Access, ...]:
    return (
        Access(
            name="identity",
            says="DefaultAzureCredential: managed or workload identity, or `az login`",
        ),
        Access(
            name="connection-string",
            says="a connection string, in a variable",
            setting="connection_string",
            variable=f"AZURE_{service}_CONNECTION_STRING",
        ),
        Access(
            name="key",
            says="the account's key, in a variable",
            setting="account_key",
            variable=f"AZURE_{service}_KEY",
        ),
    )


STORES = (
    Store(
        name="sqlite",
        says="SQLite: one file, all processes of one machine",
        form="sqlite:///FILE",
        default="sqlite:///outlive.db",
        access=(_OPEN,),
    ),
    Store(
        name="memory",
        says="memory: one process only, lost when it ends; for tests",
        form="memory://NAME",
        default="memory://demo",
        access=(_OPEN,),
    ),
    Store(
        name="postgresql",
        says="PostgreSQL: across machines",
        form="postgresql://USER@HOST:5432/DATABASE",
        default="postgresql://postgres@localhost:5432/postgres",
        schemes=("postgres",),
        access=(
            Access(name="none", says="no secret in the settings: trust, peer or ~/.pgpass"),
            _whole_url("DATABASE_URL"),
        ),
    ),
    Store(
        name="redis",
        says="Redis: across machines",
        form="redis://HOST:6379/0",
        default="redis://localhost:6379/0",
        schemes=("rediss", "redis+unix"),
        access=(_OPEN, _whole_url("REDIS_URL")),
    ),
    Store(
        name="azblob",
        says="Azure Blob Storage: across machines",
        form="azblob://ACCOUNT/CONTAINER",
        default=None,
        access=_azure("STORAGE"),
    ),
    Store(
        name="cosmos",
        says="Azure Cosmos DB: across machines",
        form="cosmos://ACCOUNT/DATABASE/CONTAINER",
        default=None,
        access=_azure("COSMOS"),
    ),
)

BACKENDS = tuple(store.name for store in STORES)


def store_of(name: str) -> Store:
    """The store of this name."""
    return next(store for store in STORES if store.name == name)


def access_of(store: Store, name: str) -> Access:
    """The access of ``store`` that has this name.

    Raises:
        UsageError: It has none of this name.
    """
    for access in store.access:
        if access.name == name:
            return access
    known = ", ".join(access.name for access in store.access)
    raise UsageError(f"{store.name} has no authentication {name!r} (known: {known})")
