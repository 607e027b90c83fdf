"""Who asks, by MUNGE: a credential that only the asking user's own process can have sealed, its payload included.

``unmunge`` checks the seal, its age and that it was not opened before (munge(1), unmunge(1)). The service's host must be of the
cluster's munge realm; nothing is taken from a credential without a user of that uid here.
"""

from __future__ import annotations

import pwd
import re
import subprocess
from collections.abc import Sequence

from ischeduler.core.errors import BadInput, IschedError

TIMEOUT_S = 2.0
LONGEST_CREDENTIAL = 16384
_CREDENTIAL = re.compile(rb"MUNGE:[A-Za-z0-9+/=]+:\s*")


class CredentialRefused(IschedError):
    """The credential is not genuine, too old, or was used before."""


def unseal(credential: bytes, *, program: Sequence[str] = ("unmunge",)) -> tuple[str, str]:
    """The user's name and the sealed text. BadInput when it is no credential; CredentialRefused when it does not hold."""
    if len(credential) > LONGEST_CREDENTIAL or not _CREDENTIAL.fullmatch(credential):
        raise BadInput("the body is no MUNGE credential; expected MUNGE:...: as munge writes it.")
    try:
        done = subprocess.run([*program, "--numeric"], input=credential, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise CredentialRefused("munge does not answer on the service's host; the guard needs its munged.") from None
    metadata, _, payload = done.stdout.partition(b"\n\n")
    if done.returncode != 0:
        raise CredentialRefused("the MUNGE credential was refused: it is not genuine, expired or was used before.")
    return _name(metadata), payload.decode("utf-8", "replace")


def _name(metadata: bytes) -> str:
    match = re.search(rb"^UID:\s+(\d+)\s*$", metadata, re.MULTILINE)
    try:
        return pwd.getpwuid(int(match[1]) if match else -1).pw_name
    except (KeyError, OverflowError):
        raise CredentialRefused("the MUNGE credential is of a user that the service's host does not know.") from None
