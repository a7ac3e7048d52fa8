/** Keyboard control of charts: arrows move from mark to mark, Enter pins the current one, Escape unpins. */

/**
 * Makes a chart's element handle keys. ``moves()`` maps key names to functions that return the next mark. ``show`` highlights
 * a mark, ``hide`` clears it, ``choose`` pins the current mark, and ``start`` returns the first one.
 */
function stepByKeys(holder, { start, moves, show, hide, choose }) {
  holder.addEventListener("focus", () => {
    if (holder.matches(":focus-visible")) show(start()); // not for focus from a mouse
  });
  holder.addEventListener("blur", hide);
  holder.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // browser shortcuts
    const move = moves()[event.key];
    if (move) show(move());
    else if (event.key === "Enter" || event.key === " ") choose();
    else if (event.key === "Escape") unpin();
    else return;
    event.preventDefault();
  });
}

/** Returns the item some steps further in a row, clamped to its ends, or ``otherwise`` if the item is not in the row. */
function stepped(row, item, steps, otherwise = row[0]) {
  const index = row.indexOf(item);
  if (index < 0) return otherwise;
  return row[Math.min(row.length - 1, Math.max(0, index + steps))];
}

/** Redraws a focused chart and shows the tooltip at ``where(drawn)``, after ECharts has restored the previous tooltip. */
function redrawWithTip(chart, where) {
  const drawn = chart.drawn();
  chart.redraw();
  setTimeout(() => {
    if (document.activeElement === chart.holder) drawn.dispatchAction({ type: "showTip", ...where(drawn) });
  });
}

/** The keyboard cursor of a chart whose marks are trials. */
class TrialKeys {
  /**
   * ``marks()`` lists the marks: ``trial`` is an index, ``x`` and ``y`` order them for arrows sideways and upwards.
   * ``words(trial)`` lists the values that the chart shows; ``tipPlace(chart, mark)`` returns the pixel of the mark's tooltip.
   */
  constructor(chart, { marks, words, tipPlace }) {
    Object.assign(this, { chart, marks, words, tipPlace });
    this.trial = null; // its index, while the chart has the focus
    stepByKeys(chart.holder, {
      start: () => stepped(this.row("x"), pinnedTrial(), 0),
      moves: () => this.moves(),
      show: (trial) => this.show(trial),
      hide: () => this.hide(),
      choose: () => {
        pinTrial({ trial: this.trial });
        this.draw();
      },
    });
  }

  /** The indexes of trials by increasing ``x`` or ``y``; ties go to the trial that started first. */
  row(axis) {
    const marks = this.marks().sort((one, other) => one[axis] - other[axis] || one.trial - other.trial);
    return marks.map((mark) => mark.trial);
  }

  moves() {
    const from = this.trial ?? pinnedTrial();
    const along = (axis, steps) => () => stepped(this.row(axis), from, steps);
    return {
      ArrowLeft: along("x", -1),
      ArrowRight: along("x", 1),
      ArrowUp: along("y", 1),
      ArrowDown: along("y", -1),
      Home: () => this.row("x")[0],
      End: () => this.row("x").at(-1),
    };
  }

  show(trial) {
    if (trial == null) return;
    this.trial = trial;
    this.draw();
    announce(spokenTrial(trials[trial], this.words(trials[trial])));
  }

  draw() {
    const mark = this.marks().find(({ trial }) => trial === this.trial);
    if (!mark) return;
    redrawWithTip(this.chart, (drawn) => {
      const [x, y] = this.tipPlace(drawn, mark);
      return { x, y, tooltip: { formatter: () => tip(mark) } };
    });
  }

  hide() {
    this.trial = null;
    this.chart.redraw();
    this.chart.drawn().dispatchAction({ type: "hideTip" });
  }
}

/** The pixel of a mark with this ``value`` on two axes. */
function placeOnAxes(chart, { value }) {
  return chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, value);
}
