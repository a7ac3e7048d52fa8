/** The front: P against S, with all points, the limit, the baselines and the members. */

let cursor = null; // index of the point at the keyboard cursor
let isZoomed = false;

function beginFront() {
  const container = unfold("front-chart");
  if (!container) return;
  const holder = keyedHolder(container, "large", run.title, "front-canvas");
  const legend = legendOf("Legend of the front", frontLegend, ["color", "split"]);
  container.append(frontControls(), element("div", { class: "beside" }, element("div", {}, holder, legend), pinnedCard()));
  if (points.stored > points.trial.length) {
    const counts = `Showing ${points.trial.length.toLocaleString("en")} of ${points.stored.toLocaleString("en")} points`;
    const text = `${counts}: the front, each trial's best point, and an even sample of the others.`;
    container.append(element("p", { class: "hint" }, text));
  }
  const front = new Chart(holder, frontOptions, (chart) => listenToFront(chart, front));
  onSelection((names) => {
    if (names.has("pinned") && cursor !== null && selection.pinned !== null) cursor = selection.pinned;
    if (["split", "pinned", "selected", "color"].some((name) => names.has(name))) front.redraw();
    if (names.has("area")) showArea(front.chart);
  });
  stepByKeys(holder, {
    start: () => cursor ?? selection.pinned ?? firstMember(),
    moves: frontMoves,
    show: (point) => moveCursor(point, front),
    hide: () => hideCursor(front),
    choose: () => {
      pin(cursor);
      drawCursor(front);
    },
  });
  zoomListeners.push(() => front.redraw());
}

const zoomListeners = [];

function frontControls() {
  const parts = [];
  if (run.splits.length > 1) {
    const splits = run.splits.map((split) => [split, split]);
    const group = choiceGroup("split", "Scores on", splits, selection.split, (split) => change({ split }));
    onSelection((names) => {
      if (names.has("split")) group.querySelector(`[value=${selection.split}]`).checked = true;
    });
    parts.push(group);
  }
  parts.push(selectBox("Color by", colorKeys(), usualColorKey(), (color) => change({ color })));
  const zoom = element("button", { type: "button", "aria-pressed": "false" }, "Zoom to the front");
  zoom.addEventListener("click", () => {
    isZoomed = !isZoomed;
    zoom.setAttribute("aria-pressed", String(isZoomed));
    zoomListeners.forEach((listener) => listener());
  });
  parts.push(zoom, areaToggle());
  return element("div", {}, element("div", { class: "controls" }, ...parts), areaByNumbers());
}

/** With a mouse, dragging selects an area; touch scrolls until selection is switched on. */
let isSelecting = matchMedia("(pointer: fine)").matches;
const selectingListeners = [];

function areaToggle() {
  const toggle = element("button", { type: "button", "aria-pressed": String(isSelecting) }, "Drag to select an area");
  toggle.addEventListener("click", () => {
    isSelecting = !isSelecting;
    toggle.setAttribute("aria-pressed", String(isSelecting));
    selectingListeners.forEach((listener) => listener());
  });
  return toggle;
}

/** Number fields for the same area. */
function areaByNumbers() {
  const inputs = {};
  const box = (name, label) => {
    inputs[name] = element("input", { type: "number", step: "0.1", "aria-label": label, inputmode: "decimal" });
    inputs[name].addEventListener("change", apply);
    return inputs[name];
  };
  const apply = () => {
    const read = (name, otherwise) => (inputs[name].value === "" ? otherwise : Number(inputs[name].value));
    const isEmpty = Object.values(inputs).every((input) => input.value === "");
    const s = [read("fromS", -100), read("toS", 100)];
    const p = [read("fromP", -100), read("toP", 100)];
    change({ area: isEmpty ? null : { s, p } });
  };
  const row = element(
    "div",
    { class: "controls numbers" },
    element("span", {}, `${headingP} from `, box("fromP", `${headingP} from`), " to ", box("toP", `${headingP} to`)),
    element("span", {}, `${headingS} from `, box("fromS", `${headingS} from`), " to ", box("toS", `${headingS} to`)),
  );
  onSelection((names) => {
    if (!names.has("area") || row.contains(document.activeElement)) return;
    const { s, p } = selection.area || { s: ["", ""], p: ["", ""] };
    const shown = (number) => (number === "" ? "" : number.toFixed(1));
    [inputs.fromS.value, inputs.toS.value] = s.map(shown);
    [inputs.fromP.value, inputs.toP.value] = p.map(shown);
  });
  return element("details", {}, element("summary", {}, "Select an area by numbers"), row);
}

/** The members that are scored on the split, by increasing S there. */
function shownMembers() {
  const scored = run.members.filter((member) => position(member.point, selection.split));
  const s = (member) => position(member.point, selection.split)[0];
  return scored.sort((one, other) => s(one) - s(other));
}

function frontOptions() {
  const scheme = colors();
  const paint = coloring();
  const isNarrow = innerWidth < 640;
  const around = isZoomed ? shownMembers().map((member) => position(member.point, selection.split)) : [];
  const [limitsOfS, limitsOfP] = limitsAround(around);
  return {
    animation: false,
    grid: { left: isNarrow ? 46 : 58, right: 16, top: 14, bottom: 48 },
    tooltip: tipStyle(scheme, tip),
    xAxis: { type: "value", scale: true, nameGap: 28, ...axisStyle(scheme, `${scoreOf.get("s").label} (×100)`, limitsOfS) },
    yAxis: { type: "value", scale: true, nameGap: isNarrow ? 30 : 38, ...axisStyle(scheme, `${scoreOf.get("p").label} (×100)`, limitsOfP) },
    brush: {
      toolbox: [],
      xAxisIndex: 0,
      yAxisIndex: 0,
      seriesIndex: [],
      brushStyle: { color: withOpacity(scheme.link, 0.12), borderColor: scheme.link, borderWidth: 1 },
    },
    series: frontSeries(scheme, paint),
  };
}

function frontSeries(scheme, paint) {
  const split = selection.split;
  const limits = run.limits[split];
  const members = shownMembers();
  return [
    allPoints(paint),
    ...limitSeries(limits, scheme),
    ...baselineSeries(limits, scheme),
    {
      id: "front line",
      type: "line",
      silent: true,
      symbol: "none",
      step: "start",
      lineStyle: { color: scheme.ink, width: 1.2 },
      data: staircase(members.filter((member) => isPointSelected(member.point))),
      z: 4,
    },
    trajectorySeries(scheme, paint),
    intervalSeries(members, scheme),
    memberSeries(members, scheme, paint),
    highlightSeries(members, scheme),
    ringSeries("pinned ring", frontMark(selection.pinned), { color: scheme.link, width: 3, size: 22 }),
    ringSeries("cursor ring", frontMark(cursor), { color: scheme.ink, width: 2, size: 28 }),
  ];
}

/** The non-dominated members by increasing S: on test, some members may dominate others. */
function staircase(members) {
  const corners = [];
  let best = -Infinity;
  for (const member of [...members].reverse()) {
    const corner = position(member.point, selection.split);
    if (corner[1] > best) {
      best = corner[1];
      corners.unshift(corner);
    }
  }
  return corners;
}

function allPoints(paint) {
  const isDense = points.trial.length > 1500;
  const data = [];
  const numShown = selection.split === "dev" ? points.trial.length : 0; // on test only members are scored
  for (let index = 0; index < numShown; index++) {
    if (isPointSelected(index)) {
      const color = paint.of(trialOfPoint(index));
      const itemStyle = { color: color, opacity: isDense ? 0.4 : 0.6 };
      data.push({ value: [points.s[index], points.p[index]], symbol: shapeOfPoint(index), itemStyle, point: index });
    }
  }
  return { id: "points", type: "scatter", symbolSize: isDense ? 4 : 6, data, z: 2 };
}

function limitSeries(limits, scheme) {
  const series = [];
  if (limits.oracle.length) {
    const data = limits.oracle.map((value) => ({ value, name: "oracle: upper limit of any encoder", scores: { s: value[0], p: value[1] } }));
    const lineStyle = { color: scheme.soft, width: 1.4, type: "dashed" };
    const itemStyle = { color: scheme.soft };
    series.push({ id: "oracle", type: "line", symbol: "circle", symbolSize: 4, lineStyle, itemStyle, data, z: 3 });
  }
  if (limits.reference) {
    const { s, p } = limits.reference;
    const data = [{ value: [s, p], name: "reference encoder R", scores: limits.reference }];
    series.push({ id: "reference", type: "scatter", symbol: CROSS, symbolSize: 13, itemStyle: { color: scheme.ink }, data, z: 6 });
  }
  for (const [axis, minimum] of [["yAxis", limits.minimum.p], ["xAxis", limits.minimum.s]]) {
    if (minimum != null) {
      const markLine = {
        silent: true,
        symbol: "none",
        lineStyle: { color: scheme.note, type: "dotted", width: 1.5 },
        label: { show: true, formatter: "constraint", color: scheme.note, position: "insideStartTop" },
        data: [{ [axis]: minimum }],
      };
      series.push({ id: `minimum ${axis}`, type: "line", data: [], markLine });
    }
  }
  return series;
}

const BASELINE_SHAPES = { probe: "diamond", setfit: PLUS, published: CROSS };
const BASELINE_NAMES = { probe: "probe(g) on R", setfit: "SetFit", published: "published" };

function baselineSeries(limits, scheme) {
  return Object.keys(BASELINE_SHAPES).map((kind) => {
    const baselines = limits.baselines.filter((baseline) => baseline.kind === kind);
    const data = baselines.map((baseline) => ({ value: [baseline.s, baseline.p], name: baseline.name, scores: baseline }));
    const isProbe = kind === "probe";
    const itemStyle = isProbe
      ? { color: scheme.back, borderColor: scheme.ink, borderWidth: 1.2 }
      : { color: kind === "setfit" ? scheme.ink : scheme.soft };
    const lineStyle = { color: scheme.ink, type: "dotted", width: isProbe ? 1 : 0 };
    const symbolSize = kind === "published" ? 7 : 9;
    return { id: kind, type: "line", symbol: BASELINE_SHAPES[kind], symbolSize, itemStyle, lineStyle, data, z: 3 };
  });
}

function memberSeries(members, scheme, paint) {
  const isCrowded = members.length > 40;
  const data = members.map((member) => {
    const isSelected = isPointSelected(member.point);
    const itemStyle = {
      color: paint.of(trialOfPoint(member.point)),
      borderColor: scheme.ink,
      borderWidth: 1.2,
      opacity: isSelected ? 1 : 0.15,
    };
    return { value: position(member.point, selection.split), symbol: shapeOfPoint(member.point), itemStyle, point: member.point };
  });
  return { id: "members", type: "scatter", symbolSize: isCrowded ? 8 : 12, data, z: 7 };
}

/** The star of the knee and the ring of the best objective. */
function highlightSeries(members, scheme) {
  const data = [];
  for (const member of members) {
    const value = position(member.point, selection.split);
    const opacity = isPointSelected(member.point) ? 1 : 0.2;
    if (member.best) {
      const itemStyle = { color: "transparent", borderColor: scheme.ink, borderWidth: 1.6, opacity };
      data.push({ value, symbol: "diamond", symbolSize: 36, itemStyle, point: member.point });
    }
    if (member.knee) {
      const itemStyle = { color: scheme.knee, borderColor: "#1d2329", borderWidth: 1.2, opacity };
      data.push({ value, symbol: STAR, symbolSize: 19, itemStyle, point: member.point });
    }
  }
  return { id: "highlights", type: "scatter", data, z: 8 };
}

/** The mark of a point, or null if it has none on the split. */
function frontMark(index) {
  const value = index === null ? null : position(index, selection.split);
  return value && { value, point: index };
}

/** The rungs of the hovered trial, else of the pinned one, for its point's kind. */
function trajectorySeries(scheme, paint) {
  const index = cursor ?? selection.pinned;
  const series = { id: "trajectory", type: "line", silent: true, symbol: "circle", symbolSize: 5, data: [], z: 5 };
  if (index === null || selection.split !== "dev") return series;
  const color = paint.of(trialOfPoint(index));
  const data = siblings(index).map((sibling) => position(sibling, "dev"));
  return { ...series, data, lineStyle: { color: color, width: 2 }, itemStyle: { color: color } };
}

/** Points of the same trial and kind, by increasing rung. */
function siblings(index) {
  const indexes = pointsOfTrial.get(points.trial[index]).filter((other) => points.kind[other] === points.kind[index]);
  return indexes.sort((one, other) => points.step[one] - points.step[other]);
}

const MAX_INTERVALS = 30;

/** Crosses of the intervals of P and S; only the pinned member's if there are many. */
function intervalSeries(members, scheme) {
  const isShown = (member) => members.length <= MAX_INTERVALS || member.point === selection.pinned;
  const data = [];
  for (const member of members) {
    const interval = member.intervals[selection.split];
    if (interval && interval.p && isShown(member) && isPointSelected(member.point)) {
      const [s, p] = position(member.point, selection.split);
      data.push([s, p, ...interval.s, ...interval.p]);
    }
  }
  const renderItem = intervalCross(scheme);
  return { id: "intervals", type: "custom", silent: true, data, renderItem, z: 4, zlevel: 0, clip: true, encode: { x: 0, y: 1 } };
}

function intervalCross(scheme) {
  return (parameters, api) => {
    const [s, p, lowS, highS, lowP, highP] = [0, 1, 2, 3, 4, 5].map((column) => api.value(column));
    const line = (from, to) => {
      const [x1, y1] = api.coord(from);
      const [x2, y2] = api.coord(to);
      return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: scheme.soft, lineWidth: 1, opacity: 0.8 } };
    };
    return { type: "group", children: [line([lowS, p], [highS, p]), line([s, lowP], [s, highP])] };
  };
}

function listenToFront(chart, front) {
  chart.on("click", (event) => {
    if (event.data && event.data.point != null) pin(event.data.point);
  });
  chart.on("brushEnd", (event) => {
    const [area] = event.areas;
    change({ area: area ? rectangle(area.coordRange) : null });
  });
  const listen = () => chart.dispatchAction({
    type: "takeGlobalCursor",
    key: "brush",
    brushOption: { brushType: isSelecting ? "rect" : false, brushMode: "single" },
  });
  selectingListeners.push(listen);
  listen();
  showArea(chart);
  front.redraw();
}

function rectangle([[lowS, highS], [lowP, highP]]) {
  return { s: [lowS, highS], p: [lowP, highP] };
}

/** Draws the selected area, also if it was entered as numbers. */
function showArea(chart) {
  if (!chart) return;
  const areas = [];
  if (selection.area) {
    const { s, p } = selection.area;
    areas.push({ brushType: "rect", xAxisIndex: 0, yAxisIndex: 0, coordRange: [s, p] });
  }
  chart.dispatchAction({ type: "brush", areas });
}

function firstMember() {
  const members = shownMembers();
  const knee = members.find((member) => member.knee) || members[0];
  return knee ? knee.point : null;
}

function moveCursor(index, front) {
  if (index == null || !position(index, selection.split)) return;
  cursor = index;
  drawCursor(front);
  announce(spokenPoint(index));
}

function drawCursor(front) {
  if (cursor === null) return;
  redrawWithTip(front, (drawn) => {
    const seriesIndex = drawn.getOption().series.findIndex((series) => series && series.id === "cursor ring");
    return { seriesIndex, dataIndex: 0 };
  });
}

function hideCursor(front) {
  cursor = null;
  front.redraw();
  front.drawn().dispatchAction({ type: "hideTip" });
}

function frontMoves() {
  const along = shownMembers().map((member) => member.point);
  const from = cursor ?? selection.pinned;
  const steps = selection.split === "dev" && from !== null ? siblings(from) : [];
  return {
    ArrowLeft: () => stepped(along, from, -1, nearest(along, from)),
    ArrowRight: () => stepped(along, from, 1, nearest(along, from)),
    ArrowUp: () => stepped(steps, from, 1),
    ArrowDown: () => stepped(steps, from, -1),
    Home: () => along[0],
    End: () => along.at(-1),
  };
}

/** The point among these whose S is nearest to another point's. */
function nearest(indexes, index) {
  const coordinates = index === null ? null : position(index, selection.split);
  const s = coordinates ? coordinates[0] : 0;
  const distance = (other) => Math.abs(position(other, selection.split)[0] - s);
  return [...indexes].sort((one, other) => distance(one) - distance(other))[0];
}

function frontLegend() {
  const scheme = colors();
  const limits = run.limits[selection.split];
  const items = colorItems();
  const kinds = new Map(points.kinds.map(({ kind }) => [kind, SHAPES[kind] || OTHER_SHAPE]));
  if (kinds.size > 1) {
    for (const [kind, shape] of kinds) items.push(legendItem(legendMark(shape, { stroke: scheme.ink }), kind));
  }
  items.push(legendItem(legendMark("line", { stroke: scheme.ink }), "front"));
  items.push(legendItem(legendMark(STAR, { fill: scheme.knee, stroke: scheme.ink }), "knee"));
  items.push(legendItem(legendMark(RINGED, { stroke: scheme.ink }), "best objective"));
  if (limits.oracle.length) items.push(legendItem(legendMark("line", { stroke: scheme.soft, dashed: true }), "oracle: upper limit"));
  if (limits.reference) items.push(legendItem(legendMark(CROSS, { fill: scheme.ink }), "reference encoder R"));
  for (const [kind, shape] of Object.entries(BASELINE_SHAPES)) {
    if (limits.baselines.some((baseline) => baseline.kind === kind)) {
      const fill = kind === "probe" ? "none" : kind === "setfit" ? scheme.ink : scheme.soft;
      items.push(legendItem(legendMark(shape, { fill, stroke: scheme.ink }), BASELINE_NAMES[kind]));
    }
  }
  return items;
}
