"""Credentials of Azure: from single variables, and from connection strings."""

from __future__ import annotations

import base64
import re

import pytest

from stepscope.store import Bucket, BucketLocation, UnreachableError
from stepscope.store.objectstore import AZURE_VARIABLE, read_connection_string
from tests.support.azure_storage import ACCOUNT, KEY, AzureContainer

ANOTHER_KEY = base64.b64encode(b"another key").decode()


def list_names(container: AzureContainer) -> list[str]:
    return [entry.key for entry in Bucket(BucketLocation.parse(container.url())).entries()]


@pytest.fixture
def bare(container: AzureContainer, monkeypatch: pytest.MonkeyPatch) -> AzureContainer:
    """Provide a container with one object, and an environment that does not lead to it."""
    for variable in container.server.environment:
        monkeypatch.delenv(variable)
    container.put("a")
    return container


CONNECTION_STRINGS = {
    "key": "AccountName={account};AccountKey={key};BlobEndpoint={endpoint}",
    "key, as the portal writes it": "DefaultEndpointsProtocol=http;AccountName={account};"
    "AccountKey={key};BlobEndpoint={endpoint}/;QueueEndpoint={host};",
    "signature": "BlobEndpoint={endpoint};SharedAccessSignature={sas}",
    "emulator": "UseDevelopmentStorage=true",
}


@pytest.mark.parametrize("form", CONNECTION_STRINGS)
def test_a_connection_string(
    bare: AzureContainer, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = bare.server
    text = CONNECTION_STRINGS[form].format(
        account=ACCOUNT, key=KEY, endpoint=server.endpoint, host=server.host, sas=server.sas
    )
    # The emulator's port is 10000 unless this variable of the library states another one.
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.host)
    monkeypatch.setenv(AZURE_VARIABLE, text)
    assert list_names(bare) == ["a"]


def test_single_variables_come_before_a_connection_string(
    container: AzureContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AZURE_VARIABLE, f"AccountName=other;AccountKey={ANOTHER_KEY}")
    container.put("a")
    assert list_names(container) == ["a"]


def test_a_signature(container: AzureContainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", container.server.sas)
    container.put("a")
    assert list_names(container) == ["a"]


def test_endpoints_that_a_connection_string_does_not_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms of https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string"""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    account = {"account_name": "storagesample", "account_key": KEY}
    for text, endpoint in (
        (
            f"DefaultEndpointsProtocol=https;AccountName=storagesample;AccountKey={KEY}",
            "https://storagesample.blob.core.windows.net",
        ),
        (
            f"AccountName=storagesample;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn;",
            "https://storagesample.blob.core.chinacloudapi.cn",
        ),
    ):
        monkeypatch.setenv(AZURE_VARIABLE, text)
        assert read_connection_string() == {**account, "endpoint": endpoint}
    monkeypatch.delenv(AZURE_VARIABLE)
    assert read_connection_string() == {}


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        (
            {AZURE_VARIABLE: "//host/key"},
            f"invalid: {AZURE_VARIABLE} is not of the form NAME=VALUE;NAME=VALUE",
        ),
        ({AZURE_VARIABLE: f"AccountKey={KEY}"}, "has neither AccountName nor BlobEndpoint"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": KEY}, "Account must be specified"),
        (
            {
                AZURE_VARIABLE: f"AccountName={ACCOUNT};AccountKey={ANOTHER_KEY};"
                "BlobEndpoint={endpoint}"
            },
            "access denied; check the credentials in the environment (AZURE_…)",
        ),
        (
            {
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "AZURE_STORAGE_ENDPOINT": "{endpoint}",
            },
            "the endpoint has no TLS; allow that with AZURE_ALLOW_HTTP=true",
        ),
    ],
)
def test_one_sentence_without_the_key(
    bare: AzureContainer, variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(endpoint=bare.server.endpoint))
    with pytest.raises(UnreachableError, match=re.escape(reason)) as raised:
        list_names(bare)
    message = str(raised.value)
    assert message.startswith(bare.url())
    assert KEY not in message
    assert ANOTHER_KEY not in message


def test_a_missing_container(container: AzureContainer) -> None:
    missing = BucketLocation.parse("az://no-such-container/run")
    with pytest.raises(UnreachableError, match="the container does not exist"):
        Bucket(missing).get("run.json")
    with pytest.raises(UnreachableError, match="the container does not exist"):
        list(Bucket(missing).entries())
