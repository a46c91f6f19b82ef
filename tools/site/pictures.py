"""Draws the pictures of docs/concepts as SVG, one plain file for each.

    python -m tools.site.pictures            write docs/pictures/*.svg
    python -m tools.site.pictures --check    exit 1 if one of them is out of date

Each has a title and a description in words. The colours are in static/drawing.css.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from tools.site.surface import ROOT

FOLDER = ROOT / "docs" / "pictures"
STYLE = Path(__file__).parent / "static" / "drawing.css"


class Drawing:
    """Boxes, texts and arrows on a grid of pixels."""

    def __init__(self, name: str, size: tuple[int, int], title: str, description: str) -> None:
        self.name = name
        self._size = size
        self._words = (title, description)
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "middle") -> None:
        mark = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{mark} text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, text: str, kind: str = "", *, height: float = 36) -> None:
        mark = f' class="{kind}"' if kind else ""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"{mark}/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 5, text)

    def line(self, *points: tuple[float, float], kind: str = "", arrow: bool = True) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self._path(path, kind, arrow=arrow)

    def curve(self, start: tuple[float, float], bend: tuple[float, float], end: tuple[float, float]) -> None:
        self._path(f"M{start[0]:g} {start[1]:g} Q{bend[0]:g} {bend[1]:g} {end[0]:g} {end[1]:g}", "", arrow=True)

    def _path(self, path: str, kind: str, *, arrow: bool) -> None:
        mark = f' class="{kind}"' if kind else ""
        end = f' marker-end="url(#{self.name}-arrow)"' if arrow else ""
        self._parts.append(f'<path d="{path}"{mark}{end}/>')

    def svg(self) -> str:
        width, height = self._size
        title, description = map(escape, self._words)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" viewBox="0 0 {width} {height}" width="{width}" '
            f'role="img" aria-labelledby="{self.name}-title {self.name}-text">'
        )
        arrow = (
            f'<defs><marker id="{self.name}-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
        )
        return "\n".join(
            [
                head,
                f'<title id="{self.name}-title">{title}</title>',
                f'<desc id="{self.name}-text">{description}</desc>',
                f"<style>\n{STYLE.read_text('utf-8').strip()}\n</style>",
                arrow,
                *self._parts,
                "</svg>\n",
            ]
        )


def life_of_a_job() -> Drawing:
    drawing = Drawing(
        "life-of-a-job",
        (760, 330),
        "The life of a job",
        "A job starts as blocked if it waits for other chains, otherwise as pending. A blocked job becomes pending "
        "when all its chains are complete. A worker claims a pending job that is due: it is running. It ends as "
        "completed, or goes back to pending after an error, a reschedule or a lost worker. It ends as failed when its "
        "attempts are used up, as expired when its deadline has passed, and as cancelled when it is ended by hand. "
        "A failed job can be retried: it is pending again.",
    )
    drawing.text(60, 62, "start", "soft")
    drawing.line((80, 58), (128, 58))
    drawing.box(130, 40, 110, "blocked")
    drawing.text(185, 30, "waits for chains", "soft")
    drawing.line((60, 72), (60, 158), (128, 158))
    drawing.line((185, 76), (185, 138))
    drawing.text(194, 112, "all complete", "soft", anchor="start")
    drawing.box(130, 140, 110, "pending", "strong")
    drawing.line((240, 150), (398, 150))
    drawing.text(319, 142, "a worker claims it", "soft")
    drawing.box(400, 140, 110, "running", "strong")
    drawing.curve((400, 170), (319, 205), (240, 170))
    drawing.text(356, 206, "error, reschedule, lost worker", "soft")
    drawing.line((510, 158), (618, 58))
    drawing.box(620, 40, 120, "completed", "good")
    drawing.line((510, 158), (618, 158))
    drawing.box(620, 140, 120, "failed", "bad")
    drawing.text(680, 192, "no attempts left", "soft")
    drawing.line((680, 200), (680, 300), (185, 300), (185, 178), kind="soft")
    drawing.text(432, 318, "client.retry, queuert retry", "soft")
    drawing.box(230, 240, 120, "expired", "bad")
    drawing.line((215, 176), (268, 238))
    drawing.text(268, 230, "deadline passed", "soft", anchor="start")
    drawing.box(480, 240, 120, "cancelled", "bad")
    drawing.line((470, 176), (530, 238))
    drawing.text(540, 225, "cancel, at any time", "soft", anchor="start")
    return drawing


def phases() -> Drawing:
    drawing = Drawing(
        "phases",
        (760, 300),
        "Phases and modes",
        "Three timelines of one attempt. Without a phase, the handler has no transaction, and its result is stored "
        "together with others. In atomic mode, one transaction is open from the beginning of prepare or complete until "
        "the handler has returned. In staged mode, prepare has a short transaction, then the slow call runs without "
        "one while the lease is renewed, and complete has a second transaction in which your rows and the end of the "
        "job commit together.",
    )
    rows = [(40, "no phase"), (130, "atomic"), (220, "staged")]
    for y, name in rows:
        drawing.text(20, y + 23, name, anchor="start")
        drawing.line((110, y + 48), (740, y + 48), kind="soft")
    drawing.box(120, 40, 420, "your code, no transaction")
    drawing.box(560, 40, 150, "the result is stored", "strong")
    drawing.box(120, 130, 590, 'prepare("atomic") … complete(): one transaction', "strong")
    drawing.box(120, 220, 150, 'prepare("staged")', "strong")
    drawing.box(280, 220, 250, "slow call: no transaction")
    drawing.box(540, 220, 170, "complete()", "strong")
    drawing.text(405, 290, "the lease is renewed", "soft")
    drawing.text(625, 290, "your rows and the end of the job", "soft")
    drawing.text(195, 290, "a short read", "soft")
    drawing.text(740, 25, "time →", "soft", anchor="end")
    return drawing


def chains() -> Drawing:
    drawing = Drawing(
        "chains",
        (760, 240),
        "Chains and blockers",
        "Two orders are chains of three jobs each: reserve stock, charge card, send receipt. Charge card may continue "
        "with itself, an hour later. The last job of each chain returns a receipt, which is the result of the chain. "
        "Close day has both chains as blockers: it begins when both are complete, and reads their results.",
    )
    for y, number in ((40, 1), (150, 2)):
        drawing.text(15, y - 10, f"chain: order {number}", "soft", anchor="start")
        drawing.box(15, y, 125, "ReserveStock")
        drawing.line((140, y + 18), (178, y + 18))
        drawing.box(180, y, 125, "ChargeCard")
        drawing.line((305, y + 18), (343, y + 18))
        drawing.box(345, y, 125, "SendReceipt")
        drawing.line((470, y + 18), (508, y + 18))
        drawing.box(510, y, 80, "Receipt", "good")
    drawing.curve((225, 76), (242, 112), (260, 77))
    drawing.text(242, 118, "again in an hour", "soft")
    drawing.line((590, 58), (640, 58), (640, 108))
    drawing.line((590, 168), (640, 168), (640, 148))
    drawing.box(605, 110, 125, "CloseDay", "strong")
    drawing.text(667, 210, "blocked until both", "soft")
    drawing.text(667, 227, "chains are complete", "soft")
    return drawing


def leases() -> Drawing:
    drawing = Drawing(
        "leases",
        (760, 260),
        "Leases and fences",
        "Worker A claims a job with token 1 and a lease, and renews it. Then its machine hangs, and the lease ends. "
        "Worker B takes the job with token 2, runs the handler and commits the result. When worker A wakes up, its "
        "complete is refused: its token is old. So only one result counts, however late A comes back.",
    )
    for y, name in ((50, "worker A"), (150, "worker B")):
        drawing.text(15, y + 23, name, anchor="start")
        drawing.line((95, y + 48), (745, y + 48), kind="soft")
    drawing.box(100, 50, 170, "claims: token 1", "strong")
    drawing.box(280, 50, 320, "hangs: nothing is renewed")
    drawing.box(610, 50, 130, "complete()", "bad")
    drawing.text(640, 118, "token 1 is old: refused", "soft")
    drawing.line((340, 20), (340, 215), kind="bad", arrow=False)
    drawing.text(340, 15, "the lease ends", "soft")
    drawing.box(350, 150, 130, "claims: token 2", "strong")
    drawing.box(490, 150, 110, "complete()", "good")
    drawing.text(545, 218, "commits, once", "soft")
    drawing.text(180, 118, "the lease is renewed", "soft")
    drawing.text(745, 250, "time →", "soft", anchor="end")
    return drawing


def notifications() -> Drawing:
    drawing = Drawing(
        "notifications",
        (760, 280),
        "Notifications",
        "Your process commits rows and a job to the database. After the commit, a message goes through the channel: "
        "the database itself, Redis or NATS. It wakes the workers, which read the database and claim the job. If the "
        "message is lost, workers find the job when they poll, within five seconds. When the job is done, a second "
        "message wakes your call of wait, which polls every second.",
    )
    drawing.box(20, 110, 140, "your process", "strong")
    drawing.box(310, 30, 150, "the database", "good", height=60)
    drawing.box(310, 190, 150, "the channel", height=60)
    drawing.box(600, 110, 140, "workers", "strong")
    drawing.line((110, 108), (308, 55))
    drawing.text(190, 62, "1. commit: rows and job", "soft")
    drawing.line((110, 148), (308, 215))
    drawing.text(165, 205, "2. “there is work”", "soft")
    drawing.line((460, 215), (640, 148))
    drawing.text(590, 205, "3. wake up", "soft")
    drawing.line((640, 108), (462, 55))
    drawing.text(590, 62, "4. claim, run, settle", "soft")
    drawing.line((600, 128), (160, 128), kind="soft")
    drawing.text(380, 120, "5. “the chain has ended”: wait() returns", "soft")
    drawing.text(380, 270, "messages may be lost: then everything happens one poll later", "soft")
    return drawing


def limits() -> Drawing:
    drawing = Drawing(
        "limits",
        (760, 250),
        "Limits by key",
        "Three tenants have jobs in line: tenant 7 has many, tenant 8 has one, tenant 9 has two. The limit is two "
        "running jobs for each tenant. Two jobs of tenant 7 run, one of tenant 8 and two of tenant 9. The others of "
        "tenant 7 wait, although workers are idle. The tenants take turns, so that the many jobs of tenant 7 do not "
        "delay the others.",
    )
    drawing.text(255, 20, "in line", "soft")
    drawing.text(620, 20, "running, at most 2 for each key", "soft")
    for y, tenant, waiting, running in ((40, 7, 5, 2), (110, 8, 0, 1), (180, 9, 0, 2)):
        drawing.text(15, y + 23, f"tenant {tenant}", anchor="start")
        drawing.line((95, y + 48), (745, y + 48), kind="soft", arrow=False)
        for number in range(waiting):
            drawing.box(110 + number * 62, y, 52, "job")
        drawing.line((430, y + 18), (508, y + 18))
        for number in range(2):
            is_used = number < running
            drawing.box(520 + number * 110, y, 100, "job" if is_used else "free", "strong" if is_used else "")
    drawing.text(265, 133, "–", "soft")
    drawing.text(265, 203, "–", "soft")
    drawing.text(469, 50, "turns", "soft")
    return drawing


DRAWINGS = (life_of_a_job, phases, chains, leases, limits, notifications)


def files() -> dict[Path, str]:
    return {FOLDER / f"{drawing.name}.svg": drawing.svg() for drawing in (draw() for draw in DRAWINGS)}


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(any(path.read_text("utf-8") != text for path, text in files().items()))
    for path, text in files().items():
        path.write_text(text, "utf-8")
