/** Slices: a score of every trial's best point against one parameter at a time. */

let sliceMeasure = "objective";

const LABEL_LINE = 13;  // height of a line of labels

function beginSlices() {
  const container = unfold("slices-chart");
  if (!container) return;
  const grid = element("div", { class: "grid" });
  const charts = run.parameters.map((parameter, number) => slice(parameter, number, container, grid));
  const redraw = () => charts.forEach((chart) => chart.redraw());
  const measure = selectBox("Score", MEASURES, sliceMeasure, (name) => {
    sliceMeasure = name;
    redraw();
  });
  const legend = legendOf("Legend of the slices", trialItems, ["color"]);
  container.append(element("div", { class: "controls" }, measure), grid, legend);
  onSelection((names) => {
    if (["selected", "color", "pinned"].some((name) => names.has(name))) redraw();
  });
}

function slice(parameter, number, container, grid) {
  const holder = keyedHolder(container, "small", `Slice: ${parameter.name}`);
  const isUpright = parameter.kind === "category" && hasUprightLabels(parameter);
  if (isUpright) holder.style.height = `calc(14rem + ${labelsHeight(parameter) - 2 * LABEL_LINE}px)`;
  const isWide = isUpright && parameter.values.length > MAX_SIDE_BY_SIDE;
  grid.append(element("div", { class: isWide ? "whole-row" : null }, element("h3", {}, userText(parameter.name)), holder));
  const chart = new Chart(holder, () => sliceOptions(parameter, number, keys.trial), (drawn) => {
    drawn.on("click", (event) => pinTrial(event.data));
  });
  const marks = () => sliceSteps(parameter, number);
  const words = (trial) => [
    `${parameter.name} ${shortValue(trial.values[number])}`,
    `${measureName(sliceMeasure)} ${shownScore(bestMeasure(trial, sliceMeasure))}`,
  ];
  const keys = new TrialKeys(chart, { marks, words, tipPlace: placeOnAxes });
  return chart;
}

/** The trials for the keyboard: sideways by the parameter, upwards by the score. */
function sliceSteps(parameter, number) {
  const shown = sliceValues(parameter, number).filter(({ trial }) => isTrialSelected(trial));
  const along = (value) => (parameter.kind === "category" ? parameter.values.indexOf(value) : value);
  return shown.map(({ trial, value }) => ({ trial, x: along(value[0]), y: value[1], value }));
}

/** The positions of all trials that have the parameter and a score. */
function sliceValues(parameter, number) {
  const positions = [];
  trials.forEach((trial, index) => {
    const value = trial.values[number];
    const score = bestMeasure(trial, sliceMeasure);
    if (value == null || score == null) return;
    positions.push({ trial: index, value: [parameter.kind === "category" ? String(value) : value, score] });
  });
  return positions;
}

function sliceOptions(parameter, number, keyed) {
  const scheme = colors();
  const isCategory = parameter.kind === "category";
  const axis = axisStyle(scheme, "");
  const style = isCategory ? categoryLabels(parameter) : { formatter: shortNumber };
  axis.axisLabel = { ...axis.axisLabel, ...style };
  const type = isCategory ? "category" : parameter.log ? "log" : "value";
  const marks = sliceMarks(parameter, number, scheme);
  const ringed = marks.find((mark) => mark.trial === keyed);
  return {
    animation: false,
    grid: { left: 44, right: 14, top: 12, bottom: isCategory ? 16 + labelsHeight(parameter) : 28 },
    tooltip: { ...tipStyle(scheme, tip), confine: false, position: belowChart },
    xAxis: { type, scale: true, data: isCategory ? parameter.values : undefined, ...axis },
    yAxis: { type: "value", scale: true, ...axisStyle(scheme, ""), ...scoreExtent() },
    series: [
      { id: "trials", type: "scatter", data: marks },
      ringSeries("cursor ring", ringed && { value: ringed.value }, { color: scheme.ink, width: 2, size: 22 }),
    ],
  };
}

/** A position for the tooltip that does not cover a small chart. */
function belowChart([x], parameters, tooltip, mark, { contentSize, viewSize }) {
  const room = Math.max(0, viewSize[0] - contentSize[0]);
  return [Math.min(room, Math.max(0, x - contentSize[0] / 2)), viewSize[1]];
}

const CHARACTER = 6.5; // approximate width of a character in a label
const MAX_LABEL_LENGTH = 28; // characters
const MAX_SIDE_BY_SIDE = 18; // labels in a small chart; a chart with more takes the whole row

/** Options that show all labels, wrapped to two lines if necessary, and rotated if two lines are not enough. */
function categoryLabels(parameter) {
  const always = { interval: 0, hideOverlap: false, formatter: (value) => shortened(value, MAX_LABEL_LENGTH) };
  if (hasUprightLabels(parameter)) return { ...always, rotate: 90 };
  return { ...always, width: labelWidth(parameter), overflow: "breakAll", lineHeight: LABEL_LINE };
}

function labelWidth(parameter) {
  return 225 / parameter.values.length;
}

function longestLabel(parameter) {
  return Math.min(MAX_LABEL_LENGTH, Math.max(...parameter.values.map((value) => value.length)));
}

function hasUprightLabels(parameter) {
  return CHARACTER * longestLabel(parameter) > 2 * (labelWidth(parameter) - CHARACTER);
}

function labelsHeight(parameter) {
  return hasUprightLabels(parameter) ? CHARACTER * longestLabel(parameter) : 2 * LABEL_LINE;
}

/** The range over all trials, so that slices can be compared. */
function scoreExtent() {
  const scores = trials.map((trial) => bestMeasure(trial, sliceMeasure)).filter((score) => score != null);
  if (scores.length === 0) return {};
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  const margin = 0.04 * (high - low) || 0.5;
  return { min: Math.floor(low - margin), max: Math.ceil(high + margin) };
}

function sliceMarks(parameter, number, scheme) {
  const paint = coloring();
  const isDense = trials.length > 200;
  const pinned = pinnedTrial();
  return sliceValues(parameter, number).map(({ trial, value }) => {
    const isPinned = trial === pinned;
    const isSelected = isTrialSelected(trial);
    const itemStyle = { color: isSelected ? paint.of(trials[trial]) : scheme.line, opacity: isSelected ? 0.75 : 0.5 };
    if (isPinned) Object.assign(itemStyle, { borderColor: scheme.ink, borderWidth: 2, opacity: 1 });
    const symbol = STANDING_SHAPES[trials[trial].standing];
    return { value, symbol, symbolSize: isPinned ? 13 : isDense ? 5 : 7, itemStyle, trial };
  });
}
