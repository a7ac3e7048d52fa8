/** Charts by keyboard: arrows step from mark to mark, Enter pins what they are at, Escape lets go of what is pinned. */

/**
 * Has a chart's place take keys. ``moves()`` gives by the name of a key what leads to the next place. ``show`` marks a place,
 * ``hide`` none, ``choose`` pins the one that is marked, and ``start`` is where the keys begin.
 */
function stepByKeys(holder, { start, moves, show, hide, choose }) {
  holder.addEventListener("focus", () => {
    if (holder.matches(":focus-visible")) show(start()); // and not where a mouse begins to drag or click there
  });
  holder.addEventListener("blur", hide);
  holder.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // those are the browser's own
    const move = moves()[event.key];
    if (move) show(move());
    else if (event.key === "Enter" || event.key === " ") choose();
    else if (event.key === "Escape") unpin();
    else return;
    event.preventDefault();
  });
}

/** So many steps further in a row of places, at most at its end; from a place that is not in it, at ``otherwise``. */
function stepped(row, place, steps, otherwise = row[0]) {
  const at = row.indexOf(place);
  return at < 0 ? otherwise : row[Math.min(row.length - 1, Math.max(0, at + steps))];
}

/** Redraws a chart that has the focus, and shows the tip that ``where`` says: after that of before, which ECharts brings back. */
function redrawWithTip(chart, where) {
  const drawn = chart.drawn();
  chart.redraw();
  setTimeout(() => {
    if (document.activeElement === chart.place) drawn.dispatchAction({ type: "showTip", ...where(drawn) });
  });
}

/** Where the keys are in a chart whose marks are trials. */
class TrialKeys {
  /**
   * ``marks()`` lists what may be stepped to: ``trial``, its place; ``x`` and ``y``, along which arrows sideways and upwards go.
   * ``words(trial)`` lists what the chart shows of a trial, and ``tipPlace(chart, mark)`` is the pixel that its tip is at.
   */
  constructor(chart, { marks, words, tipPlace }) {
    Object.assign(this, { chart, marks, words, tipPlace });
    this.trial = null; // its place, while the chart has the focus
    stepByKeys(chart.place, {
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

  /** The places of trials by rising ``x`` or ``y``; of equal ones the trial that began first. */
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

/** The pixel of a mark on two axes, which has there the ``value``. */
function placeOnAxes(chart, { value }) {
  return chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, value);
}
