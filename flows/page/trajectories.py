"""The list of trajectories, with filters, sorting, search and pages. The address holds all of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.reports.wording import ENDED, ended, has_failed
from userrl.run.ending import STARTS
from userrl_core.errors import ConfigError
from warehouse import Warehouse
from warehouse.files.runs import find_run
from warehouse.query import browse
from warehouse.query.browse import FAILED, SORTS, Filter, Page

SIZE = 50

FIRST = ("run", "stop", "step", "text")
"""Filters that a narrow screen shows at first."""

EVERYTHING = "/trajectories?sort=newest"
"""The address of the list without a filter. Without any query the newest evaluation is listed."""

NEWEST = """
SELECT t.run_id, arg_max(t.policy, t.traj_id) AS policy FROM trajectories t JOIN runs r USING (run_id)
WHERE t.phase = 'evaluate' AND t.checkpoint IS NOT NULL AND NOT list_contains($starts, t.policy)
GROUP BY t.run_id, r.created ORDER BY r.created DESC LIMIT 1
"""

TRAJECTORY = (
    '<q-td :props="props"><a :href="props.row.href_traj" v-text="props.value"></a>'
    '<div class="lt-sm quiet"><a :href="props.row.href_group">group</a>&nbsp;<span v-text="props.row.run"></span></div></q-td>'
)
"""Template of the first column. On narrow screens it also shows the group and the run instead of columns."""


class Listing:
    """The request in an address: filter, order, and the row after or before which the page begins."""

    def __init__(self, warehouse: Warehouse, query: Mapping[str, str]) -> None:
        query_filter = Filter.read(query)
        self.wanted = (
            replace(query_filter, run=find_run(warehouse.root, query_filter.run)["run_id"])
            if query_filter.run
            else query_filter
        )
        self.sort = query.get("sort") or "newest"
        self.descending = query.get("order") != "up"
        self.after, self.before = (_id(query.get(name)) for name in ("after", "before"))
        self._warehouse = warehouse

    def page(self, *, after: int | None = None, before: int | None = None, size: int = SIZE) -> Page:
        """Return a page of the list."""
        return browse.trajectories(
            self._warehouse,
            self.wanted,
            sort=self.sort,
            descending=self.descending,
            after=after,
            before=before,
            size=size,
        )

    def address(self, path: str = "/trajectories", **query: Any) -> str:
        """Return an address that keeps filter and order."""
        order = {} if self.sort == "newest" else {"sort": self.sort}
        return frame.address(
            path, **self.wanted.given(), **order, **({} if self.descending else {"order": "up"}), **query
        )


async def show_trajectories(warehouse: Warehouse, query: Mapping[str, str]) -> None:
    """Draw the filters and one page of the list."""
    frame.heading("Trajectories")
    listing = Listing(warehouse, query or await frame.asked(lambda: newest_evaluation(warehouse)))
    choices = await frame.asked(lambda: browse.values(warehouse, listing.wanted.run))
    runs = [row["run_id"] for row in await frame.asked(lambda: warehouse.rows("FROM runs ORDER BY created DESC"))]
    _filters(listing, {"run": runs, **choices})
    page = await frame.asked(lambda: listing.page(after=listing.after, before=listing.before))
    totals = await frame.asked(lambda: browse.count(warehouse, listing.wanted))
    mean = "" if totals["score"] is None else f", mean score {frame.number(totals['score'])}"
    newest = f", among the newest {browse.FOUND} turns with this text" if listing.wanted.text else ""
    ui.label(f"{totals['trajectories']:,} trajectories{mean}{newest}").classes("quiet")
    if not page.rows:
        frame.sentence("No trajectory matches these filters.")
        return
    columns = {
        "traj": "Trajectory", "score": "Score", "turns": "Turns", "stop": "Outcome", "gym": "Gym", "tier": "Tier",
        "stage": "Stage", "step": "Step", "phase": "Phase", "group": "Group", "policy": "Agent", "user": "User", "run": "Run",
    }  # fmt: skip
    if listing.wanted.run:
        del columns["run"]
    with ui.element("div").classes("panel overflow-x-auto"):
        table = frame.table(
            [_shown(row, listing) for row in page.rows],
            columns,
            links=("traj", "group"),
            wide=("tier", "stage", "phase", "policy", "user", "run", "group"),
        )
        table.add_slot("body-cell-traj", TRAJECTORY)
        ui.label(
            "Failed: scored, but not a success by the gym's rule (docs/gyms.md). "
            "The filter Outcome: failed lists only these."
        ).classes("quiet text-sm")
    with ui.row().classes("gap-4"):
        if page.before:
            ui.link("← Previous page", listing.address(before=page.rows[0]["traj_id"]))
        if page.after:
            ui.link("Next page →", listing.address(after=page.rows[-1]["traj_id"]))


def newest_evaluation(warehouse: Warehouse) -> dict[str, str]:
    """Return the filter of the newest evaluation of a trained model, or of everything."""
    rows = warehouse.rows(NEWEST, starts=STARTS)
    return {"run": rows[0]["run_id"], "phase": "evaluate", "policy": rows[0]["policy"]} if rows else {}


def _filters(listing: Listing, choices: Mapping[str, list[str]]) -> None:
    active = listing.wanted.given()
    fields: dict[str, Any] = {}

    def apply() -> None:
        values = {name: _text(field.value) for name, field in fields.items()}
        order = values.pop("order")
        ui.navigate.to(frame.address("/trajectories", **{**values, "order": "up" if order == "ascending" else None}))

    labels = {"stop": "Outcome", "policy": "Agent", "user": "User"}
    with ui.element("form").classes("panel flex flex-wrap gap-3 items-end folded").on("submit.prevent", apply) as form:
        for name, options in choices.items():
            value = active.get(name)
            ending_labels = {FAILED: "failed: any outcome but success", **ENDED} if name == "stop" else {}
            listed = {
                text: ending_labels.get(text, text) for text in ("", *((FAILED,) if ending_labels else ()), *options)
            }
            if value:
                listed.setdefault(value, value)
            fields[name] = ui.select(
                listed, value=value or "", label=labels.get(name, name.capitalize()), on_change=apply
            ).classes("min-w-24" if name in FIRST else "min-w-24 later")
        for name, label in (
            ("step", "Step"), ("score_from", "Score from"), ("score_to", "Score to"), ("task", "Task"),
            ("reject_reason", "Reason not scored"), ("label", "Label (name=value)"), ("text", "Text in a turn"),
        ):  # fmt: skip
            wide = "w-48" if name in ("text", "reject_reason") else "w-24"
            fields[name] = ui.input(label, value=str(active.get(name, ""))).classes(
                wide if name in FIRST else f"{wide} later"
            )
        fields["sort"] = ui.select(list(SORTS), value=listing.sort, label="Sort by", on_change=apply).classes(
            "min-w-24 later"
        )
        order = "descending" if listing.descending else "ascending"
        fields["order"] = ui.select(["descending", "ascending"], value=order, label="Order", on_change=apply).classes(
            "later"
        )
        ui.button("Filter").props("no-caps type=submit")
        ui.button("All filters", on_click=lambda: form.classes(toggle="open")).props(
            "flat no-caps type=button"
        ).classes("unfolds")
        ui.link("Clear filters", EVERYTHING).classes("pb-2")


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _shown(row: Mapping[str, Any], listing: Listing) -> dict[str, Any]:
    traj_id = row["traj_id"]
    return {
        "id": str(traj_id),
        "traj": str(traj_id),
        "href_traj": listing.address(f"/trajectory/{traj_id}"),
        "score": frame.number(row["score"]) if row["admitted"] else "not scored",
        "turns": row["turns"],
        "stop": _ended(row),
        "gym": row["gym"],
        "tier": row["tier"],
        "stage": row["stage"],
        "step": row["step"],
        "phase": row["phase"],
        "group": row["task_id"][:12],
        "href_group": f"/group/{traj_id}",
        "policy": row["policy"],
        "user": row["user_name"],
        "run": row["run_id"],
    }


def _ended(row: Mapping[str, Any]) -> str:
    if not row["admitted"]:
        return str(row["reject_reason"])
    ending = ended(row["stop_reason"])
    return f"failed: {ending}" if has_failed(row) else ending


def _id(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise ConfigError(
            "run.no_such_trajectory", f"'{text[:40]}' is not the id of a trajectory. Begin at the first page."
        )
    return int(text)
