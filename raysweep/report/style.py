"""The style of figures and their conversion to PNG, without pyplot."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's color-blind-safe palette, with two other colors in place of black and yellow.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#5F4690")

# The same colors, lightened for dark backgrounds.
DARK_PALETTE = (
    "#4DA3DB",
    "#E8804A",
    "#2FBF94",
    "#E39CC2",
    "#F0B43C",
    "#8FD0F5",
    "#C9A54E",
    "#A796E0",
)

INK, FAINT = "#222222", "#8a8a8a"

DOTS_PER_INCH = 220

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.parse_math": False,  # model and run names may contain dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.edgecolor": FAINT,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def add_legend(figure: "Figure") -> None:
    """Add the legend of the first axes below the figure, with as many columns as fit."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for num_columns in (4, 3, 2) if handles else ():
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=num_columns)
        if legend.get_window_extent().width <= 0.98 * figure.bbox.width:
            break
        legend.remove()


def png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    return buffer.getvalue()
