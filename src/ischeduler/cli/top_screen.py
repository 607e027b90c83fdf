"""The live screen of ``isched top``. Looks are taken in a thread, so that keys answer at once. Text is never read as markup."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from ischeduler.cli.top_text import HEADER, cells, cluster_line, detail_lines, plain, title
from ischeduler.core.errors import IschedError
from ischeduler.helper.top import Glance, Lookout
from ischeduler.service.dashboard.views.run import RunPage
from ischeduler.service.dashboard.views.runs import RunRow

TONES = {"live": "cyan", "good": "green", "bad": "bold red", "warn": "yellow", "idle": ""}
LOG_LINES = 400
MOST_CLUSTERS = 4


class Words(ModalScreen[None]):
    """A text to read: why, or what the training printed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Back")]
    DEFAULT_CSS = """
    Words { align: center middle; }
    Words > VerticalScroll { width: 96%; height: 90%; border: round $accent; background: $surface; padding: 0 1; }
    """

    def __init__(self, heading: str, text: str, *, at_end: bool = False) -> None:
        super().__init__()
        self._heading, self._text, self._at_end = heading, text, at_end

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain(self._heading, 60).replace("[", "(")
            yield Static(Text("\n".join(plain(line, 2000) for line in self._text.splitlines()) or "nothing yet"), markup=False)
        yield Footer()

    def on_mount(self) -> None:
        box = self.query_one(VerticalScroll)
        box.focus()
        if self._at_end:
            box.scroll_end(animate=False)


class Ask(ModalScreen[bool]):
    """A question; only 'y' is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "yes", "Yes"), Binding("n,escape,q,enter", "no", "No")]
    DEFAULT_CSS = """
    Ask { align: center middle; }
    Ask > Static { width: 60; height: auto; border: round $warning; background: $surface; padding: 1 2; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._question}  [y/N]"), markup=False)
        yield Footer()

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class TopApp(App[None]):
    """Runs above, clusters and the chosen run's detail below."""

    TITLE = "isched top"
    CSS = """
    #title { height: 1; background: $primary; color: $text; padding: 0 1; text-style: bold; }
    DataTable { height: 1fr; }
    #clusters { height: auto; max-height: 5; border-top: solid $primary; padding: 0 1; }
    #detail { height: auto; max-height: 9; border-top: solid $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w,enter", "why", "Why"), Binding("l", "logs", "Logs"), Binding("c", "cancel", "Cancel"), Binding("r", "look", "Look now"),
        Binding("q", "quit", "Quit"),
    ]  # fmt: skip
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, lookout: Lookout, interval: float = 3.0) -> None:
        super().__init__()
        self.lookout, self.interval = lookout, interval
        self.glance: Glance | None = None

    def compose(self) -> ComposeResult:
        yield Static(Text("looking ..."), id="title", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Static("", id="clusters", markup=False)
        yield Static("", id="detail", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name in HEADER:
            table.add_column(name, key=name)
        table.focus()
        self.action_look()
        self.set_interval(self.interval, self.action_look)

    @work(thread=True, exclusive=True, group="look")
    def action_look(self) -> None:
        """Look again."""
        try:
            glance = self.lookout.glance()
        except IschedError as error:
            self.call_from_thread(self._say, str(error))
            return
        self.call_from_thread(self._show, glance)

    def _say(self, words: str) -> None:
        self.query_one("#title", Static).update(Text(plain(words)))

    def _show(self, glance: Glance) -> None:
        self.glance = glance
        self._say(title(glance))
        table = self.query_one(DataTable)
        rows = {r.id: r for r in (*glance.going, *glance.ended)}
        if [k.value for k in table.rows] != list(rows):
            self._rebuild(table, rows)
        else:
            for run_id, row in rows.items():
                for name, cell in zip(HEADER, _painted(row), strict=True):
                    table.update_cell(run_id, name, cell)
        cards = [cluster_line(c) for c in glance.clusters[:MOST_CLUSTERS]]
        self.query_one("#clusters", Static).update(Text("\n".join(cards) or "no cluster can be reached from here", no_wrap=True, overflow="ellipsis"))
        self._detail()

    def _rebuild(self, table: DataTable[Text], rows: dict[str, RunRow]) -> None:
        """The cursor stays on its run."""
        chosen = self.chosen
        table.clear()
        for run_id, row in rows.items():
            table.add_row(*_painted(row), key=run_id)
        if chosen in rows:
            table.move_cursor(row=list(rows).index(chosen))

    @property
    def chosen(self) -> str | None:
        """The id of the run under the cursor."""
        table = self.query_one(DataTable)
        return table.ordered_rows[table.cursor_row].key.value if 0 <= table.cursor_row < table.row_count else None

    def on_data_table_row_highlighted(self) -> None:
        self._detail()

    def on_data_table_row_selected(self) -> None:
        self.action_why()

    @work(thread=True, exclusive=True, group="detail")
    def _detail(self) -> None:
        run_id = self.chosen
        if run_id is None:
            self.call_from_thread(self._show_detail, "no runs yet: isched plan train.py, then isched submit 1")
            return
        try:
            words = "\n".join(detail_lines(self.lookout.detail(run_id)))
        except IschedError as error:
            words = plain(str(error))
        self.call_from_thread(self._show_detail, words)

    def _show_detail(self, words: str) -> None:
        self.query_one("#detail", Static).update(Text(words))

    def action_why(self) -> None:
        """Why the chosen run is where it is."""
        if self.chosen is not None:
            self._read(self.chosen)

    @work(thread=True, exclusive=True, group="read")
    def _read(self, run_id: str) -> None:
        try:
            page: RunPage = self.lookout.detail(run_id)
        except IschedError as error:
            self.call_from_thread(self.push_screen, Words(run_id, str(error)))
            return
        jobs = [f"job {x.number} on {x.where}: waited {x.waited}, ran {x.ran}, {x.ended_by or x.state}" for x in page.line.lanes]
        self.call_from_thread(self.push_screen, Words(f"{run_id} {page.row.name}", "\n".join([*page.why, "", page.line.words, *jobs])))

    @work(thread=True, exclusive=True, group="read")
    def action_logs(self) -> None:
        """What the training printed last."""
        run_id = self.chosen
        if run_id is None:
            return
        try:
            text = self.lookout.here.run(run_id).logs()
        except IschedError as error:
            text = str(error)
        last = "\n".join(text.splitlines()[-LOG_LINES:])
        self.call_from_thread(self.push_screen, Words(f"output of {run_id}", last, at_end=True))

    def action_cancel(self) -> None:
        """Ask, then end the chosen run."""
        run_id = self.chosen
        row = next((r for r in self.glance.going if r.id == run_id), None) if self.glance else None
        if row is None:
            self.notify("that run has ended already", markup=False)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._end(row.id)

        self.push_screen(Ask(f"End run {row.id} ({plain(row.name, 40)}, {row.state})? Checkpoints stay."), answered)

    @work(thread=True, group="end")
    def _end(self, run_id: str) -> None:
        try:
            self.lookout.here.run(run_id).cancel()
        except IschedError as error:
            self.call_from_thread(self.notify, str(error), severity="error", markup=False)
            return
        self.call_from_thread(self.notify, f"run {run_id} is being ended", markup=False)
        self.call_from_thread(self.action_look)


def _painted(row: RunRow) -> tuple[Text, ...]:
    """A row's cells, the state and the bar in the colour of how much attention they want."""
    found = [Text(c) for c in cells(row)]
    found[2].stylize(TONES[row.tone])
    found[3].stylize(TONES[row.tone])
    if row.money.over:
        found[5].stylize("bold red")
    return tuple(found)
