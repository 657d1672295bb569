"""Getting in: users, passwords, permissions, TLS, and a client library that is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.errors import ConfigurationError, StoreUnavailable
from tests.process.etcd_drivers import IMPATIENT, Drivers, owned
from tests.services.etcd import EtcdServer
from tests.services.etcd_leases import demand_users

pytestmark = [pytest.mark.service, pytest.mark.process]

PASSWORD = "p:a/ss@wörd-canary"
ENCODED = "p%3Aa%2Fss%40w%C3%B6rd-canary"


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    opened = Drivers()
    yield opened
    await opened.close()


@pytest.fixture
async def guarded(services) -> EtcdServer:
    server = services.start(EtcdServer())
    await demand_users(server.endpoint, PASSWORD)
    return server


async def test_a_user_with_the_right_password_works_across_a_restart(drivers, guarded) -> None:
    url = f"etcd://app:{ENCODED}@{guarded.endpoint}"
    driver = await drivers.open(url, options={"connect_timeout": 0.5})
    granted = await owned(driver, "k", "a/1")
    assert not driver.wakeups.deaf
    # etcd keeps login tokens in memory: they are worth nothing after this.
    guarded.kill()
    guarded.revive()
    renewed = await driver.leases.renew(granted, granted.ttl_us)
    assert renewed.token == granted.token
    await driver.leases.release(renewed)
    findings = await driver.check()
    assert [finding for finding in findings if finding.level == "error"] == []
    assert any("clear text" in finding.what for finding in findings)
    assert PASSWORD not in repr(findings)


@pytest.mark.parametrize(
    ("account", "told"),
    [
        ("app:wrong-canary@", "does not accept the user or the password"),
        (f"nobody:{ENCODED}@", "does not accept the user or the password"),
        ("", "asks for a user"),
        (f"other:{ENCODED}@", "does not permit this"),
    ],
)
async def test_who_may_not_is_told_why_without_the_password(
    drivers, guarded, account, told, caplog
) -> None:
    with pytest.raises(ConfigurationError, match=told) as raised:
        await drivers.open(f"etcd://{account}{guarded.endpoint}")
    seen = f"{raised.value!r} {raised.value.__cause__!r} {caplog.text}"
    assert "canary" not in seen


async def test_a_password_that_nobody_asks_for_does_no_harm(drivers, etcd_server) -> None:
    driver = await drivers.open(f"etcd://app:{ENCODED}@{etcd_server.endpoint}")
    await owned(driver, "k", "a/1")


# -- TLS ------------------------------------------------------------------------------------------


def issue(program: Path, folder: Path) -> dict[str, Path]:
    """An authority, and certificates of the server and of a client."""

    def run(*arguments: str) -> None:
        subprocess.run(
            [program, *arguments], cwd=folder, check=True, capture_output=True, timeout=60
        )

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run(
        *("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
        *("-subj", "/CN=outlive test authority"),
    )
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "")):
        run("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension)
        run(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext"),
        )
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def files(openssl, tmp_path_factory) -> dict[str, Path]:
    return issue(openssl, tmp_path_factory.mktemp("tls"))


@pytest.fixture
def locked(services, files) -> EtcdServer:
    tls = {
        "--cert-file": files["server.pem"],
        "--key-file": files["server.key"],
        "--trusted-ca-file": files["ca.pem"],
    }
    return services.start(EtcdServer("--client-cert-auth", tls=tls))


async def test_tls_with_a_certificate_of_the_client(drivers, locked, files) -> None:
    options = {"ca": files["ca.pem"], "cert": files["client.pem"], "key": files["client.key"]}
    driver = await drivers.open(f"etcds://{locked.endpoint}", options=options)
    await owned(driver, "k", "a/1")
    query = f"?ca={files['ca.pem']}&cert={files['client.pem']}&key={files['client.key']}"
    again = await drivers.open(f"etcd://{locked.endpoint}/{query}", "b")
    assert (await again.leases.get("k"))[0].owner == "a/1"


@pytest.mark.parametrize("given", [(), ("ca",)], ids=["nothing", "no client certificate"])
async def test_tls_that_does_not_match_is_unavailable(drivers, locked, files, given) -> None:
    options = {name: files[f"{name}.pem"] for name in given}
    with pytest.raises(StoreUnavailable, match="cannot reach etcd"):
        await drivers.open(f"etcds://{locked.endpoint}", options={**options, **IMPATIENT})


# -- the client library ---------------------------------------------------------------------------

WITHOUT = """
import asyncio, sys
sys.modules["aetcd"] = sys.modules["grpc"] = None
import outlive
from outlive.connect import find_factory
factory = find_factory("etcd")
assert factory.capabilities.fifo and "prefix" in factory.options
try:
    asyncio.run(outlive.connect("etcd://127.0.0.1:1")._open())
except outlive.ConfigurationError as error:
    print(error)
"""


def test_a_missing_client_library_names_the_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'outlive[etcd]'" in done.stdout
