"""What requests may carry. Every text is bounded, nothing unknown is taken, and a NUL or a control character is no text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _plain(text: str) -> str:
    """No control characters: they belong into no name, path or option, and PostgreSQL's text has no NUL."""
    if any(ord(c) < 32 or c == "\x7f" or 0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise ValueError("must be one line of plain text, without control characters")
    return text


def _no_nul(text: str) -> str:
    if "\x00" in text or any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise ValueError("must be text without NUL characters")
    return text


Word = Annotated[str, Field(max_length=200), AfterValidator(_plain)]
Text = Annotated[str, Field(max_length=4096), AfterValidator(_plain)]
Lines = Annotated[str, Field(max_length=65536), AfterValidator(_no_nul)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Few = Annotated[int, Field(ge=1, le=10**6)]
Words = Annotated[tuple[Word, ...], Field(max_length=64)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
PlanId = Annotated[str, Field(pattern=r"^p-[0-9a-f]{16}$", examples=["p-0123456789abcdef"])]
WorkloadId = Annotated[str, Field(pattern=r"^w-[0-9a-f]{16}$", examples=["w-0123456789abcdef"])]


class Strict(BaseModel):
    """Unknown fields are an error: a misspelt one must not be dropped in silence."""

    model_config = ConfigDict(extra="forbid", strict=False)


class EnvironmentBody(Strict):
    """How the job's shell is prepared."""

    modules: Words = ()
    conda: Text | None = None
    venv: Text | None = None
    image: Text | None = None
    variables: Annotated[dict[Word, Text], Field(max_length=256)] = Field(default_factory=dict)


class ServiceBody(Strict):
    """A long-lived service in place of a training: the fields of :class:`ischeduler.core.service.Service`."""

    ready_file: Text = ""
    ready_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    ready_url: Text = ""
    for_s: Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)] | None = None
    restarts: Annotated[int, Field(ge=0, le=10**6)] = 5
    linger_s: Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)] = 5.0
    drain_s: Annotated[float, Field(gt=0, le=10**6, allow_inf_nan=False)] = 10.0
    replace_after_s: Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)] = 120.0


class ElasticBody(Strict):
    """On how many accelerators else it may run: the fields of :class:`ischeduler.core.elastic.Elastic`."""

    world_sizes: Annotated[tuple[Few, ...], Field(max_length=64)] = ()
    batch: Word = "keep"
    rate: Word = "none"
    base: tuple[Few, Few, Few] | None = None


class WorkloadBody(Strict):
    """What is trained: the fields of :class:`ischeduler.core.workload.Workload` under the same names."""

    model: Text = ""
    samples: Count = 0
    epochs: Few = 1
    batch_size: Few | Annotated[tuple[Few, ...], Field(min_length=1, max_length=32)] = 32
    name: Word = ""
    command: Annotated[tuple[Annotated[str, Field(max_length=4096), AfterValidator(_no_nul)], ...], Field(max_length=512)] = ()
    directory: Text = ""
    input_shape: Annotated[tuple[Few, ...], Field(max_length=8)] = ()
    classes: Few | None = None
    optimizer: Word = "sgd"
    precision: Word = "fp32"
    framework: Word = "pytorch"
    grad_accum: Few = 1
    eval_samples: Count = 0
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    cpus: Annotated[int, Field(ge=1, le=100_000)] | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=2**60)] | None = None
    checkpoints: bool = True
    checkpoint_every_s: Annotated[float, Field(gt=0, le=10**8, allow_inf_nan=False)] | None = None
    environment: EnvironmentBody = Field(default_factory=EnvironmentBody)
    options: Annotated[dict[Word, Text], Field(max_length=128)] = Field(default_factory=dict)
    service: ServiceBody | None = None
    elastic: ElasticBody | None = None

    def fields(self) -> dict[str, Any]:
        """The fields that were given."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class AskBody(Strict):
    """What to plan for. Either ``workload``, or the id of a saved one in ``saved``."""

    workload: WorkloadBody | None = None
    saved: WorkloadId | None = None
    goal: Word | None = None
    clusters: Words = ()
    partitions: Words = ()
    account: Word | None = None
    qos: Word | None = None
    assume: Lines = Field("", description="The text of a file of declared figures (TOML or JSON), taken before any estimate.")

    def asked(self) -> dict[str, Any]:
        """The arguments of the backend's plan."""
        return {
            "goal": self.goal, "clusters": self.clusters, "partitions": self.partitions, "account": self.account, "qos": self.qos,
            "assume": self.assume,
        }  # fmt: skip


class EstimateBody(AskBody):
    """What to estimate; ``memory`` asks for card memory part by part, too."""

    memory: bool = False


class CapsBody(Strict):
    """Limits on what the plane may do unasked; those left out are the centre's."""

    max_attempts: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_failures: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    deadline: Annotated[float, Field(ge=0, le=10**11, allow_inf_nan=False, description="Epoch seconds.")] | None = None
    allow_smaller_batch: bool | None = None
    allow_move: bool | None = None
    stall_after_s: Annotated[float, Field(ge=60, le=10**7, allow_inf_nan=False)] | None = None

    def given(self) -> dict[str, Any]:
        """Those that were given."""
        return self.model_dump(exclude_none=True)


class SubmitBody(Strict):
    """A kept plan's option to delegate. ``choice`` is a number, soonest, cheapest, ideal, goal, or CLUSTER/PARTITION."""

    plan: PlanId
    choice: Word = "goal"
    caps: CapsBody = Field(default_factory=CapsBody)
    project: Name | None = None


class StressBody(Strict):
    """A kept plan's option to delegate many times."""

    plan: PlanId
    choice: Word = "goal"
    runs: Annotated[int, Field(ge=1, le=500)] = 10
    caps: CapsBody = Field(default_factory=CapsBody)


class MoveBody(Strict):
    """Where a run shall go on."""

    where: Word


class SaveBody(Strict):
    """A workload to keep under a name."""

    name: Name
    workload: WorkloadBody


class TokenBody(Strict):
    """A personal token to make."""

    label: Word = ""
    scopes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=3)] = ("read", "write")
    days: Annotated[float, Field(gt=0, le=366, allow_inf_nan=False)] = 90.0


class WebhookBody(Strict):
    """Where events of one's runs are sent. ``kinds`` empty: all kinds."""

    url: Annotated[str, Field(max_length=2000, pattern=r"^https?://"), AfterValidator(_plain)]
    kinds: Annotated[tuple[Name, ...], Field(max_length=64)] = ()


class UserBody(Strict):
    """A person to add."""

    name: Name
    display_name: Word = ""
    email: Annotated[str, Field(max_length=320), AfterValidator(_plain)] = ""
    roles: Annotated[tuple[Name, ...], Field(max_length=8)] = ("user",)


class UserChangeBody(Strict):
    """What of a person changes."""

    display_name: Word | None = None
    email: Annotated[str, Field(max_length=320), AfterValidator(_plain)] | None = None
    roles: Annotated[tuple[Name, ...], Field(max_length=8)] | None = None
    disabled: bool | None = None


class LinkBody(Strict):
    """An issuer's subject that is this user."""

    issuer: Annotated[str, Field(max_length=300), AfterValidator(_plain)]
    subject: Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_plain)]


class ProjectBody(Strict):
    """A project to add."""

    name: Name
    title: Word = ""


class MemberBody(Strict):
    """Whether a member administers the project."""

    admin: bool = False
