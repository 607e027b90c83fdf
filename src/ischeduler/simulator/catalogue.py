"""Where public job traces are, and how they come here. The project ships none of them; each has its own licence and wish to be cited."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ischeduler.core.errors import BadInput, NotFound

_PWA = "https://www.cs.huji.ac.il/labs/parallel/workload"
_CITE_PWA = "Parallel Workloads Archive; cite Feitelson, Tsafrir and Krakov, JPDC 74(10), 2014, and the log's donor"
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class PublicTrace:
    """One public trace: what it is, its format, the machine's units, its licence or the wish to be cited, and its address."""

    name: str
    description: str
    format: str
    units: int
    licence: str
    url: str

    @property
    def filename(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def _pwa(name: str, description: str, units: int, path: str) -> PublicTrace:
    return PublicTrace(name, description, "swf", units, _CITE_PWA, f"{_PWA}/{path}")


PUBLIC: tuple[PublicTrace, ...] = (
    _pwa("kth-sp2", "KTH SP2, Stockholm, 1996-97, 28 thousand jobs", 100, "l_kth_sp2/KTH-SP2-1996-2.1-cln.swf.gz"),
    _pwa("sdsc-sp2", "San Diego SP2, 1998-2000, 60 thousand jobs", 128, "l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz"),
    _pwa("sdsc-blue", "San Diego Blue Horizon, 2000-03, 243 thousand jobs", 1152, "l_sdsc_blue/SDSC-BLUE-2000-4.2-cln.swf.gz"),
    _pwa("ctc-sp2", "Cornell SP2, 1996-97, 77 thousand jobs", 338, "l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz"),
    _pwa("lanl-cm5", "Los Alamos CM-5, 1994-96, 122 thousand jobs", 1024, "l_lanl_cm5/LANL-CM5-1994-4.1-cln.swf.gz"),
    _pwa("hpc2n", "HPC2N, Umeå, 2002-06, 203 thousand jobs", 240, "l_hpc2n/HPC2N-2002-2.2-cln.swf.gz"),
    _pwa("cea-curie", "CEA Curie, 2011-12, 312 thousand jobs", 93312, "l_cea_curie/CEA-Curie-2011-2.1-cln.swf.gz"),
    _pwa("anl-intrepid", "Argonne Intrepid (BlueGene/P), 2009, 69 thousand jobs", 163840, "l_anl_int/ANL-Intrepid-2009-1.swf.gz"),
    _pwa("metacentrum-2013", "MetaCentrum, Czech national grid, 2013-15, 5.7 million jobs", 0, "l_metacentrum2/METACENTRUM-2013-3.swf.gz"),
    _pwa("unilu-gaia", "University of Luxembourg Gaia, 2014, 52 thousand jobs", 2004, "l_unilu_gaia/UniLu-Gaia-2014-2.swf.gz"),
    PublicTrace(
        "alibaba-gpu-2023", "Alibaba GPU cluster, pods of 2023, 8 thousand", "csv", 6212, "see the repository",
        "https://raw.githubusercontent.com/alibaba/clusterdata/master/cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv",
    ),
    PublicTrace(
        "philly", "Microsoft Philly GPU cluster, 2017, 117 thousand jobs (an archive, read as it is)", "tar.gz", 2490,
        "CC BY 4.0", "https://media.githubusercontent.com/media/msr-fiddle/philly-traces/master/trace-data.tar.gz",
    ),
)  # fmt: skip


def public_trace(name: str) -> PublicTrace:
    """The trace of that name. NotFound names the nearest ones."""
    known = {t.name: t for t in PUBLIC}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "isched traces list shows them; an address starts with https://."
    raise NotFound(f"There is no public trace '{name}'; {hint}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A download: where it is, its size and SHA-256, how many bytes came this time, and whether it went on from an earlier try."""

    path: str
    size_bytes: int
    sha256: str
    received_bytes: int
    resumed: bool


def fetch(
    url: str, path: Path, *, sha256: str = "", timeout_s: float = 60.0, progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Fetched:  # fmt: skip
    """Download ``url`` to ``path``. What came so far is kept in ``path.part`` and a later call goes on from there.

    ``path`` appears only when everything came: as long as the server said it is, and with the checksum ``sha256`` where one is given.
    ``progress`` hears bytes so far and in all (None when the server does not say). BadInput, one sentence, when that cannot be.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError

    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        received, resumed = _download(url, part, timeout_s, progress)
    except HTTPError as error:
        raise BadInput(f"{url} was refused ({error.code} {error.reason}); the address may have moved: look for it in a browser.") from None
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        words = getattr(error, "reason", None) or error
        raise BadInput(f"{url} cannot be reached ({words}); check the network, then run the same again: it goes on where it stopped.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror or error}); give another place.") from None
    digest = file_sha256(part)
    if sha256 and digest != sha256.lower():
        part.unlink()
        raise BadInput(f"{url} came with SHA-256 {digest}, expected {sha256.lower()}; the file was thrown away: fetch it again.")
    part.replace(path)
    return Fetched(str(path), path.stat().st_size, digest, received, resumed)


def _download(url: str, part: Path, timeout_s: float, progress: Callable[[int, int | None], None]) -> tuple[int, bool]:
    """Bytes that came, and whether they were added to earlier ones: only where the server says that its file is still the same."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    tag = part.with_name(part.name + ".tag")
    have = part.stat().st_size if part.exists() and tag.exists() else 0
    headers = {"Range": f"bytes={have}-", "If-Range": tag.read_text()} if have else {}
    request = Request(url, headers={"User-Agent": "ischeduler", **headers})
    try:
        answer = urlopen(request, timeout=timeout_s)
    except HTTPError as error:
        if error.code == 416 and have:
            part.unlink()
            return _download(url, part, timeout_s, progress)
        raise
    with answer:
        resumed = bool(have) and answer.status == 206
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if version:
            tag.write_text(version)
        done = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else None
        received = 0
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                received += len(chunk)
                progress(done + received, total)
    if total is not None and done + received != total:
        raise BadInput(f"{url} broke off after {done + received:,} of {total:,} bytes; run the same again: it goes on where it stopped.")
    tag.unlink(missing_ok=True)
    return received, resumed


def file_sha256(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
