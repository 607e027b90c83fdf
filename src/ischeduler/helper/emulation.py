"""What ``isched emulate`` starts: the training itself, told by its environment which cards to believe in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from ischeduler.cidb.accelerators import accelerators, by_gres
from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import BadInput
from ischeduler.core.naming import gpus_of_gres
from ischeduler.core.sizes import MIB
from ischeduler.emulator.spec import EmulationSpec
from ischeduler.helper.suggest import did_you_mean

CONTEXT_BYTES = 450 * MIB
"""What CUDA and its libraries take before the first tensor; 0.3 to 1.7 GB were seen, by stack."""
_SITE = Path(__file__).resolve().parent.parent / "emulator" / "site"
_ASK_S = 30.0
TABLES_URL = "https://github.com/mengwanguc/gpemu/archive/27e9534ee0c3d594030e2519d4a418b3f0a7860f.tar.gz"
"""GPEmu's repository at the commit that was looked at; it states no licence."""
_TABLES = "profiled_data"
_KINDS = ("time", "memory")


@dataclass(frozen=True, slots=True)
class Table:
    """A folder in GPEmu's layout and the names in it."""

    folder: str
    gpu: str
    model: str


def find_accelerator(word: str, environ: Mapping[str, str] | None = None) -> Accelerator:
    """The datasheet that a word names: a key (``v100-32g``), a GRES type, a product's name, or ``auto``, what this job asked for.

    BadInput, with the nearest name, for any other.
    """
    word = _of_this_job(os.environ if environ is None else environ) if word == "auto" else word
    known = accelerators()
    found = known.get(word.lower()) or by_gres(word)[0]
    if not found.memory_bytes:
        raise BadInput(f"no datasheet of '{word}' is known{did_you_mean(word, known)}; expected one of {', '.join(known)}.")
    return found


def _of_this_job(environ: Mapping[str, str]) -> str:
    job = environ.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise BadInput("--accelerator auto takes what a Slurm job asked for, and this is none; name one, e.g. --accelerator v100-32g.")
    done = subprocess.run(
        ["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=_ASK_S, check=False, stdin=subprocess.DEVNULL
    )
    for gres in re.findall(r"TresPer(?:Node|Job|Task|Socket)=(?:gres[:/])?(\S+)", done.stdout):
        kinds = [kind for kind in gpus_of_gres(gres.replace("gres:", "").replace("gres/", "")) if kind]
        if kinds:
            return kinds[0]
    raise BadInput(f"job {job} asked for no GPU of a named type; name one, e.g. --accelerator v100-32g.")


def emulation_of(
    accelerator: str, *, count: int = 1, precision: str = "fp32", memory_bytes: int | None = None, table: Table | None = None,
    shared: str = "", preprocess_s: float = 0.0, report: str = "",
) -> EmulationSpec:
    """The emulation that a command line asks for, checked before the training starts. BadInput says what is wrong."""
    card = find_accelerator(accelerator)
    if not 1 <= count <= 64:
        raise BadInput(f"--count must be 1 to 64, got {count}.")
    if table is not None:
        from ischeduler.emulator.tables import read_table

        read_table(Path(table.folder), table.gpu, table.model)
    return EmulationSpec(
        card, memory_bytes or card.memory_bytes, min(CONTEXT_BYTES, card.memory_bytes // 4), count, precision,
        table=str(Path(table.folder).absolute()) if table else "", table_gpu=table.gpu if table else "",
        table_model=table.model if table else "", shared=str(Path(shared).absolute()) if shared else "",
        preprocess_s=preprocess_s, report=str(Path(report).absolute()) if report else "",
    )  # fmt: skip


def environment_of(spec: EmulationSpec, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The training's environment: the spec, and first on its Python path what turns the emulation on."""
    base = dict(os.environ if environ is None else environ)
    path = [str(_SITE), *(p for p in base.get("PYTHONPATH", "").split(os.pathsep) if p)]
    return {**base, **spec.environment(), "PYTHONPATH": os.pathsep.join(path)}


@dataclass(frozen=True, slots=True)
class FetchedTables:
    """Where measured tables are now, how many, and the names that ``--table-gpu`` takes."""

    folder: str
    files: int
    gpus: tuple[str, ...]


def fetch_tables(
    folder: Path, *, url: str = "", progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> FetchedTables:  # fmt: skip
    """Download GPEmu's measured tables into ``folder``, which must not be there; SOURCE.json in it tells where they came from.

    BadInput when the archive does not come, or holds no tables.
    """
    from ischeduler.simulator.catalogue import fetch

    url = url or TABLES_URL
    if folder.exists():
        raise BadInput(f"{folder} exists; remove it or give another folder with --fetch-tables.")
    archive = folder.with_name(f"{folder.name}.download")
    done = fetch(url, archive, progress=progress)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tables-") as room:
            unpacked = Path(room) / "tables"
            files = _unpack(archive, unpacked, url)
            source = {
                "url": url, "sha256": done.sha256, "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "licence": "not stated: use, do not pass on",
            }  # fmt: skip
            (unpacked / "SOURCE.json").write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
            unpacked.rename(folder)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}); give another folder with --fetch-tables.") from None
    finally:
        archive.unlink(missing_ok=True)
    return FetchedTables(str(folder), files, tuple(sorted(p.name for p in (folder / "time" / "compute" / "forward").iterdir())))


def _unpack(archive: Path, to: Path, url: str) -> int:
    """The tables alone, as files of their own: nothing else of the archive is written, whatever its members say."""
    files = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts[1:]
                if not member.isfile() or parts[:1] != (_TABLES,) or parts[1:2] not in [(k,) for k in _KINDS] or parts[-1][-4:] != ".csv" or ".." in parts:
                    continue
                content = tar.extractfile(member)
                assert content is not None
                path = to.joinpath(*parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                files += 1
    except (tarfile.TarError, EOFError) as error:
        raise BadInput(f"{url} is no archive that can be read ({error}); look at the address in a browser.") from None
    if not (to / "time" / "compute" / "forward").is_dir():
        raise BadInput(f"{url} holds no {_TABLES}/time/compute/forward; expected GPEmu's repository.")
    return files
