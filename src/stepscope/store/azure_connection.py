"""Connection strings of Azure Storage, which the library `obstore` does not read.

https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
_PUBLIC_CLOUD = "core.windows.net"


def read_connection_string() -> dict[str, str]:
    """Return the library's settings for the connection string in the environment.

    It counts only where `AZURE_STORAGE_ACCOUNT_NAME` does not name an account: the library would
    mix the two.

    Raises:
        ValueError: a part is missing or has no value; the message does not repeat the text, which
            holds a key.
    """
    text = os.environ.get(VARIABLE, "")
    if not text or "AZURE_STORAGE_ACCOUNT_NAME" in os.environ:
        return {}
    parts = _parse(text)
    if parts.get("usedevelopmentstorage", "").casefold() == "true":
        return {"use_emulator": "true"}
    endpoint = parts.get("blobendpoint") or _default_endpoint(parts)
    url = urlsplit(endpoint)
    settings = {
        "account_name": parts.get("accountname") or (url.hostname or "").partition(".")[0],
        "endpoint": endpoint.rstrip("/"),
        "account_key": parts.get("accountkey", ""),
        "sas_key": parts.get("sharedaccesssignature", ""),
        "allow_http": "true" if url.scheme == "http" else "",
    }
    return {name: value for name, value in settings.items() if value}


def _parse(text: str) -> dict[str, str]:
    """Split into parts by name, in lower case. Values may contain '='."""
    parts = {}
    for part in filter(None, text.strip().split(";")):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise ValueError(f"{VARIABLE} is not of the form NAME=VALUE;NAME=VALUE")
        parts[name.strip().casefold()] = value.strip()
    return parts


def _default_endpoint(parts: dict[str, str]) -> str:
    account = parts.get("accountname")
    if not account:
        raise ValueError(f"{VARIABLE} has neither AccountName nor BlobEndpoint")
    protocol = parts.get("defaultendpointsprotocol") or "https"
    return f"{protocol}://{account}.blob.{parts.get('endpointsuffix') or _PUBLIC_CLOUD}"
