"""The project's style of pictures, and the file that one is written to.

Sizes suit a phone's width and a printed column alike: 11 point letters on 5.6 inches. The tones are the
report's: they differ in lightness as well as in hue, so that colour-blind eyes and grey paper tell them apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import MachineError, MissingPackage, RecipeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
TONES = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e0a100",
    "#6a51a3",
    "#8a8f98",
    "#7a4b12",
    "#14213d",
    "#8a9a3b",
)
INK, SOFT, GRID, WARN = "#1b1f24", "#5a6270", "#e3e4df", "#b3261e"
WIDTH_INCHES, DPI = 5.6, 200
TITLE_CHARACTERS = 54
"""Of a title's line: more run out of the picture."""
STYLE: Any = {
    "font.size": 11,
    "font.family": "sans-serif",
    "axes.labelsize": 11,
    "axes.titlesize": 12,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "svg.hashsalt": "trainwright",
    "svg.fonttype": "none",
    "xtick.minor.visible": False,
}


def legend_below(axes: Axes, *, columns: int) -> None:
    """Puts the names of what is drawn under the picture."""
    figure = axes.figure
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=columns,
        handlelength=1.0,
        columnspacing=1.4,
        handletextpad=0.5,
    )


def drawable(path: Path) -> Path:
    """``path`` itself, if a picture can be written there: asked before long answers are printed.

    Raises:
        RecipeError: its suffix is no picture's.
        MachineError: there is no such folder.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise RecipeError("cannot draw such a file", where=path, seen=repr(path.suffix), expected=" or ".join(SUFFIXES))
    if not path.parent.is_dir():
        raise MachineError("cannot write the picture", where=path, seen=f"no folder {path.parent}")
    return path


@contextmanager
def picture(path: Path, title: str = "", *, height: float) -> Iterator[Figure]:
    """A figure in the project's style, written to ``path`` whole or not at all when it is drawn."""
    from trainwright.artifact.store import write_atomically

    drawable(path)
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingPackage("matplotlib", needed_for="a picture", extra="pictures") from error
    title = textwrap.fill(title, TITLE_CHARACTERS)
    lines = len(title.splitlines())
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH_INCHES, height + 0.3 * lines), layout="constrained")
        if title:
            figure.suptitle(title, x=0.02, ha="left")
        yield figure
        form = path.suffix.lower().removeprefix(".")
        made = {"Date": None} if form == "svg" else {"Software": None}
        drawn = BytesIO()
        figure.savefig(drawn, format=form, dpi=DPI, facecolor="white", metadata=made)
        try:
            write_atomically(path, drawn.getvalue())
        except OSError as error:
            raise MachineError("cannot write the picture", where=path, seen=error.strerror) from None
