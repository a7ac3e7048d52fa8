/** A chart that is drawn when it scrolls into view, and redrawn when its size or the color scheme changes. */
class Chart {
  /** ``options`` returns ECharts options; ``onReady`` is called once with the chart, when it is first drawn. */
  constructor(holder, options, onReady = () => {}) {
    this.holder = holder;
    this.options = options;
    this.onReady = onReady;
    this.chart = null;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        seen.disconnect();
        this.drawn();
      }
    }, { rootMargin: "400px" });
    seen.observe(holder);
    onTheme(() => this.redraw());
  }

  /** The ECharts object. Draws the chart if it has not been drawn yet, for example before handling a key. */
  drawn() {
    if (!this.chart) this.begin();
    return this.chart;
  }

  begin() {
    this.chart = echarts.init(this.holder, null, { renderer: "canvas" });
    this.redraw();
    new ResizeObserver(() => this.resize()).observe(this.holder);
    this.onReady(this.chart);
  }

  /** The observer also calls this when it starts, before any change. */
  resize() {
    const { clientWidth, clientHeight } = this.holder;
    const isSameSize = this.chart.getWidth() === clientWidth && this.chart.getHeight() === clientHeight;
    if (!isSameSize) this.chart.resize();
  }

  redraw() {
    if (this.chart) this.chart.setOption(this.options(), { replaceMerge: ["series"] });
  }
}

/** The focusable element of a section's chart, described by the section's note on keys. */
function keyedHolder(section, size, label, id) {
  const hint = section.querySelector(".keys");
  hint.id = `${section.id}-keys`;
  return element("div", {
    class: `chart chart-${size}`,
    id,
    tabindex: "0",
    role: "application",
    "aria-label": label,
    "aria-describedby": hint.id,
  });
}

/** The limits of both axes around these pairs of S and P, or null for each axis without pairs. */
function limitsAround(pairs) {
  return [0, 1].map((column) => {
    if (pairs.length === 0) return null;
    const values = pairs.map((pair) => pair[column]);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = 0.06 * (high - low) || 0.5;
    return [Number((low - margin).toFixed(2)), Number((high + margin).toFixed(2))];
  });
}

/** The style shared by all axes. Given limits are not labeled: they are no round numbers and may touch other labels. */
function axisStyle(scheme, name, limits = null) {
  const [min, max] = limits || [null, null]; // null removes the limits of an earlier drawing
  const showLabel = limits ? false : null;
  return {
    name,
    nameLocation: "middle",
    nameTextStyle: { color: scheme.soft, fontSize: 12 },
    min,
    max,
    axisLine: { lineStyle: { color: scheme.soft } },
    axisTick: { lineStyle: { color: scheme.soft } },
    axisLabel: { color: scheme.soft, fontSize: 11, hideOverlap: true, showMinLabel: showLabel, showMaxLabel: showLabel },
    splitLine: { lineStyle: { color: scheme.grid } },
  };
}

/** Tooltips are elements built by :mod:`point_card`, not markup. */
function tipStyle(scheme, make) {
  return {
    trigger: "item",
    confine: true,
    transitionDuration: 0,
    backgroundColor: scheme.card,
    borderColor: scheme.soft,
    padding: [8, 10],
    textStyle: { color: scheme.ink, fontSize: 13 },
    formatter: ({ data }) => make(data),
  };
}

/** A ring around the pinned mark or the keyboard cursor; ``mark`` is the mark's data in the chart, or null. */
function ringSeries(id, mark, { color, width, size }) {
  const itemStyle = { color: "transparent", borderColor: color, borderWidth: width };
  return { id, type: "scatter", symbol: "circle", symbolSize: size, itemStyle, data: mark ? [mark] : [], z: 9, silent: true };
}

const SHAPES = {
  plain: "circle",
  concat: "rect",
  class_concat: "triangle",
  interpolate: "path://M0,0L10,0L5,9Z",
  truncate: "diamond",
};
const STAR = "path://M5,0L6.2,3.5L10,3.6L7,5.9L8.1,9.5L5,7.4L1.9,9.5L3,5.9L0,3.6L3.8,3.5Z";
const CROSS = "path://M0,0L2,0L5,3.6L8,0L10,0L6.2,5L10,10L8,10L5,6.4L2,10L0,10L3.8,5Z";
const PLUS = "path://M3.6,0L6.4,0L6.4,3.6L10,3.6L10,6.4L6.4,6.4L6.4,10L3.6,10L3.6,6.4L0,6.4L0,3.6L3.6,3.6Z";

const RINGED = "path://M5,0.5L9.5,5L5,9.5L0.5,5ZM5,3.4A1.6,1.6,0,1,0,5.01,3.4Z"; // a diamond around another mark

const OTHER_SHAPE = "diamond";

function shapeOfPoint(index) {
  return SHAPES[points.kinds[points.kind[index]].kind] || OTHER_SHAPE;
}

const STANDING_SHAPES = {
  completed: "circle",
  stopped: "path://M0,0L10,0L5,9Z",
  "stopped by a person": "path://M9,0L0,5L9,10Z",
  paused: "rect",
  interrupted: "triangle",
  failed: CROSS,
  running: "path://M0,0L9,5L0,10Z",
};

/** A slightly wider line in the text color, drawn below the pinned trial's line, which keeps its color. */
function outline(line, scheme) {
  return { ...line, lineStyle: { color: scheme.ink, opacity: 1, width: line.lineStyle.width + 3 } };
}

/** A legend built by ``items``; rebuilt when the colors or one of these selection names change. */
function legendOf(label, items, names) {
  const list = element("ul", { class: "legend", "aria-label": label });
  const draw = () => list.replaceChildren(...items());
  draw();
  onTheme(draw);
  onSelection((changed) => {
    if (names.some((name) => changed.has(name))) draw();
  });
  return list;
}

function legendItem(mark, words) {
  return element("li", {}, mark, userText(words));
}

/** A legend of the trials' colors. */
function colorItems() {
  return coloring().legend.map(([color, words]) => legendItem(legendMark("circle", { fill: color }), words));
}

/** A legend of the trials' colors and signs, merged if trials are colored by status. */
function trialItems() {
  if (colorKey() === "status") return statusItems(coloring().of);
  const { ink } = colors();
  return [...colorItems(), ...statusItems(() => ink)];
}

/** The signs of all statuses with a rung; each has the color of a trial with that status. */
function statusItems(colorOf) {
  const withRungs = trials.filter((trial) => trial.rungs.length);
  return run.statuses.flatMap(({ standing, words }) => {
    const example = withRungs.find((trial) => trial.standing === standing);
    return example ? [legendItem(legendMark(STANDING_SHAPES[standing], { fill: colorOf(example) }), words)] : [];
  });
}

/** A mark as a small image for a legend. */
function legendMark(shape, { fill = "none", stroke = "none", dashed = false } = {}) {
  const style = { fill, stroke, "stroke-width": 1.2 };
  const content = {
    circle: () => svgElement("circle", { cx: 5, cy: 5, r: 4, ...style }),
    rect: () => svgElement("rect", { x: 1, y: 1, width: 8, height: 8, ...style }),
    triangle: () => svgElement("path", { d: "M5,1L9.5,9L0.5,9Z", ...style }),
    diamond: () => svgElement("path", { d: "M5,0.5L9.5,5L5,9.5L0.5,5Z", ...style }),
    line: () => svgElement("path", { d: "M0,5L10,5", ...style, "stroke-dasharray": dashed ? "3 2" : "none" }),
  }[shape];
  const drawn = content ? content() : svgElement("path", { d: shape.replace("path://", ""), ...style });
  return svgElement("svg", { viewBox: "-0.5 -0.5 11 11", "aria-hidden": "true" }, drawn);
}
