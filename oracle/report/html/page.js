// Draws any plane of the verdict that is asked for. Without this script the page has the smallest
// plane of each disagreement, drawn by pictures.py, whose measures and marks are the same.
"use strict";
(() => {
  const atlas = JSON.parse(document.getElementById("atlas").textContent);
  if (!atlas.geometries.length) return;
  document.documentElement.classList.add("scripted");

  const CELL = { width: 30, height: 18 };
  const LEFT = 34, TOP = 18;
  const COLOURS = 8;
  const MOST = { tokens: 128, columns: 64 };
  const BAR = { start: 100, width: 900, top: 26, bottom: 60 };
  const SIDES = ["K", "V"];
  const DECLARED = "declared";

  const byId = (id) => document.getElementById(id);
  const storedBy = byId("stored-by"), lookedForBy = byId("looked-for-by");
  const geometryChoice = byId("geometry"), headChoice = byId("head");
  const sideChoices = [...document.querySelectorAll("input[name=side]")];

  const html = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const svg = (tag, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  const quiet = (text) => html("p", { className: "quiet" }, text);
  const counted = (number) => number.toLocaleString("en");

  // ---- What is where --------------------------------------------------------------------------

  const placesOf = (plane) =>
    (plane.places ??= plane.runs.flatMap(([first, step, count]) =>
      Array.from({ length: count }, (_, index) => (first === null ? null : first + step * index))));

  const isInside = (place) => place !== null && place >= 0;

  const inWords = (plane, place, geometry) => {
    if (place === null) return "no place that was found";
    if (place < 0) return plane.elsewhere[-2 - place];
    const row = Math.floor(place / geometry.columns), col = place % geometry.columns;
    return `offset ${place}, row ${row}, col ${col}`;
  };

  const scaleInWords = (index, geometry) =>
    `token ${Math.floor(index / geometry.columns)}, column ${index % geometry.columns}`;

  const differ = (one, other, index) => {
    const a = placesOf(one)[index], b = placesOf(other)[index];
    if (a === null || b === null) return false;
    if (a < 0 && b < 0) return one.elsewhere[-2 - a] !== other.elsewhere[-2 - b];
    return a !== b;
  };

  // Other heads may be laid out differently, so that their planes say nothing about each other.
  const areApart = (one, other) =>
    one && other && one.head !== null && other.head !== null && one.head !== other.head;

  // ---- What is chosen -------------------------------------------------------------------------

  const chosen = () => {
    const side = sideChoices.findIndex((choice) => choice.checked);
    const at = Number(geometryChoice.value), geometry = atlas.geometries[at];
    const writer = Number(storedBy.value), other = lookedForBy.value;
    const layout = other === DECLARED ? atlas.declared[writer][side] : other;
    const isReader = other in atlas.subjects;
    const index = isReader ? atlas.found[other][side][at] : atlas.layouts[layout]?.[at] ?? -1;
    const first = atlas.planes[atlas.found[writer][side][at]], found = atlas.planes[index];
    const second = areApart(first, found) ? undefined : found;
    const name = atlas.subjects[writer].name;
    const deed = atlas.subjects[writer].role === "writer" ? "stores" : "looks for";
    const heads = [first, second].find((plane) => plane && plane.head !== null);
    return {
      side, at, geometry, writer, first, isReader,
      other: isReader ? Number(other) : null,
      second,
      head: heads ? heads.head : Math.min(Number(headChoice.value) || 0, geometry.heads - 1),
      firstSays: `${name} ${deed} it at`,
      secondSays: isReader ? `${atlas.subjects[other].name} looks at`
        : `${layout ?? "nothing is declared: no layout"} puts it at`,
      names: [`${name} ${deed === "stores" ? "stores" : "looks"} here`,
        isReader ? `${atlas.subjects[other].name} looks here` : `${layout ?? "nothing declared"}`],
    };
  };

  const pairOf = (writer, reader) =>
    atlas.pairs.find(([one, other]) => one === writer && other === reader)?.[2];

  const stateInWords = (choice) => {
    const { geometry, first, second, side, at } = choice;
    if (!first) return "This verdict does not say where these scales are: no name and no form.";
    if (!second) return "No plane to compare with: undefined here, unknown, or of another head.";
    const size = geometry.tokens * geometry.columns;
    if (choice.isReader) {
      const differing = pairOf(choice.writer, choice.other)?.[side][at];
      const all = `${counted(size * geometry.heads)} scales of a page`;
      if (differing === -1) return "Undecided here.";
      if (differing === 0) return `They agree about all ${all}.`;
      if (differing > 0) return `≠ They disagree about ${counted(differing)} of ${all}.`;
    }
    let count = 0;
    for (let index = 0; index < size; index += 1) count += differ(first, second, index);
    return count ? `≠ ${counted(count)} of ${counted(size)} scales of a head differ.`
      : `All ${counted(size)} scales of a head are in the same place.`;
  };

  // ---- Drawing --------------------------------------------------------------------------------

  const sharedOf = (places) => {
    const times = new Map();
    for (const place of places) times.set(place, (times.get(place) ?? 0) + 1);
    return (place) => isInside(place) && times.get(place) > 1;
  };

  const cell = (plane, place, token, column, geometry, corner, line) => {
    const x = LEFT + column * CELL.width, y = TOP + token * CELL.height;
    const row = Math.floor(place / geometry.columns) % COLOURS;
    const where = `${inWords(plane, place, geometry)}${corner ? ", differs" : ""}`;
    const drawn = svg("g", {
      class: isInside(place) ? `cell r${row}` : "cell outside",
      role: "gridcell", tabindex: "-1",
      "aria-label": `token ${token}, column ${column}: ${where}`,
      "data-token": token, "data-column": column,
    });
    const number = isInside(place) ? place : place === null ? "?" : "out";
    drawn.append(
      svg("rect", { x, y, width: CELL.width, height: CELL.height }),
      svg("text", { x: x + CELL.width / 2, y: y + 12 }, number),
    );
    const stroke = (kind, d) => drawn.append(svg("path", { class: kind, d }));
    if (corner) stroke("corner", `M${x + CELL.width} ${y}h-8l8 8z`);
    if (line) stroke("shared", `M${x + 3} ${y + CELL.height - 3}h${CELL.width - 6}`);
    return drawn;
  };

  const panel = (plane, other, geometry, name) => {
    const places = placesOf(plane), isShared = sharedOf(places);
    const tokens = Math.min(geometry.tokens, MOST.tokens);
    const columns = Math.min(geometry.columns, MOST.columns);
    const width = LEFT + columns * CELL.width + 1, height = TOP + tokens * CELL.height + 1;
    const viewBox = `0 0 ${width} ${height}`;
    const drawn = svg("svg", {
      class: "plane", viewBox, width, height, role: "grid", "aria-label": name,
    });
    const axis = (kind, x, y, text) =>
      svg("text", { class: kind, x, y, "aria-hidden": "true" }, text);
    for (let column = 0; column < columns; column += 1) {
      const x = LEFT + column * CELL.width + CELL.width / 2;
      drawn.append(axis("axis", x, TOP - 5, `s${column}`));
    }
    for (let token = 0; token < tokens; token += 1) {
      const y = TOP + token * CELL.height + 12;
      const line = svg("g", { role: "row" });
      line.append(axis("axis first", LEFT - 5, y, `t${token}`));
      for (let column = 0; column < columns; column += 1) {
        const index = token * geometry.columns + column, place = places[index];
        const corner = Boolean(other) && differ(plane, other, index);
        line.append(cell(plane, place, token, column, geometry, corner, isShared(place)));
      }
      drawn.append(line);
    }
    drawn.querySelector("[role=gridcell]").setAttribute("tabindex", "0");
    const isCut = tokens < geometry.tokens || columns < geometry.columns;
    return html("div", { className: "panel" },
      html("p", { className: "panel-name" }, name), drawn,
      isCut ? quiet(`The first ${tokens} tokens and ${columns} columns.`) : "");
  };

  const draw = () => {
    const choice = chosen();
    headChoice.max = choice.geometry.heads - 1;
    headChoice.value = choice.head;
    byId("state").textContent = stateInWords(choice);
    const { first, second, geometry, names } = choice;
    byId("panels").replaceChildren(
      first ? panel(first, second, geometry, names[0]) : "",
      second ? panel(second, first, geometry, names[1]) : "");
    byId("readout").replaceChildren(quiet("Point at a scale, or move with the arrow keys."));
    pointers(choice, null, null);
    for (const button of document.querySelectorAll("td button")) {
      const { writer, reader } = button.parentElement.dataset;
      const isShown = Number(writer) === choice.writer && Number(reader) === choice.other;
      button.setAttribute("aria-pressed", isShown);
    }
  };

  // ---- Looking at one scale -------------------------------------------------------------------

  const byteOf = (choice, place) => {
    if (!isInside(place)) return null;
    const { base, head, row, columns } = choice.geometry;
    const inPlane = Math.floor(place / columns) * row + place % columns;
    return base[choice.side] + choice.head * head + inPlane;
  };

  const pointers = (choice, first, second) => {
    const bar = byId("bar").firstElementChild;
    for (const old of bar.querySelectorAll(".pointer")) old.remove();
    const mark = (byte, y, shape) => {
      if (byte === null) return;
      const x = BAR.start + BAR.width * byte / choice.geometry.bytes;
      bar.append(svg("g", { class: "pointer" }, svg("path", { d: `M${x} ${y}${shape}` })));
    };
    mark(first, BAR.top - 2, "l-6 -11h12z");
    mark(second, BAR.bottom + 2, "l-6 11h12z");
  };

  const look = (token, column) => {
    const choice = chosen(), { geometry, first, second } = choice;
    const index = token * geometry.columns + column;
    const [put, sought] = [first, second].map((plane) => (plane ? placesOf(plane)[index] : null));
    const told = [`head ${choice.head}, token ${token}, column ${column}`];
    const tell = (says, plane, place) => {
      const byte = byteOf(choice, place);
      const where = byte === null ? "" : `: byte ${counted(byte)} of the page`;
      const twin = isInside(place)
        ? placesOf(plane).findIndex((each, i) => each === place && i !== index) : -1;
      const also = twin < 0 ? "" : `, shared with ${scaleInWords(twin, geometry)}`;
      told.push(`${says} ${inWords(plane, place, geometry)}${where}${also}`);
    };
    if (first) tell(choice.firstSays, first, put);
    if (second) tell(choice.secondSays, second, sought);
    let there = -1;
    if (first && second && differ(first, second, index)) {
      there = isInside(sought) ? placesOf(first).indexOf(sought) : -1;
      const whose = there < 0 ? "no scale of this head"
        : `the scale of ${scaleInWords(there, geometry)}`;
      told.push(`≠ What is there is ${whose}.`);
    } else if (put !== null && sought !== null) {
      told.push("= Both are the same byte.");
    }
    byId("readout").replaceChildren(...told.map((text) => html("p", {}, text)));
    pointers(choice, byteOf(choice, put), byteOf(choice, sought));
    mark(token, column, there, geometry);
  };

  const at = (drawn, token, column) =>
    drawn.querySelector(`[data-token="${token}"][data-column="${column}"]`);

  const ring = (drawn, token, column, kind) => {
    const found = at(drawn, token, column);
    if (!found) return;
    const { x, y } = found.firstElementChild.getBBox();
    drawn.append(svg("rect", { class: `ring ${kind}`, x, y, ...CELL }));
  };

  const mark = (token, column, there, geometry) => {
    for (const old of document.querySelectorAll(".ring")) old.remove();
    const drawings = document.querySelectorAll("#panels .plane");
    for (const drawn of drawings) ring(drawn, token, column, "now");
    if (there >= 0) {
      ring(drawings[0], Math.floor(there / geometry.columns), there % geometry.columns, "there");
    }
  };

  const cellOf = (event) => event.target.closest?.("[role=gridcell]");

  const lookAt = (event) => {
    const found = cellOf(event);
    if (found) look(Number(found.dataset.token), Number(found.dataset.column));
  };

  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    PageUp: [-4, 0], PageDown: [4, 0], Home: [0, -Infinity], End: [0, Infinity] };

  const move = (event) => {
    const found = cellOf(event), step = STEPS[event.key];
    if (!found || !step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const drawn = found.closest(".plane"), rows = drawn.querySelectorAll("[role=row]");
    const columns = rows[0].querySelectorAll("[role=gridcell]").length;
    const within = (value, size) => Math.max(0, Math.min(size - 1, value));
    const next = at(drawn, within(Number(found.dataset.token) + step[0], rows.length),
      within(Number(found.dataset.column) + step[1], columns));
    found.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  };

  // ---- Choosing -------------------------------------------------------------------------------

  const show = (writer, reader, side, geometry) => {
    storedBy.value = writer;
    lookedForBy.value = reader;
    sideChoices[side].checked = true;
    geometryChoice.value = geometry;
    draw();
  };

  const showPair = (writer, reader) => {
    const sides = pairOf(writer, reader);
    const isBad = (differing) => differing > 0;
    const side = Math.max(0, sides.findIndex((geometries) => geometries.some(isBad)));
    show(writer, reader, side, Math.max(0, sides[side].findIndex(isBad)));
  };

  const options = (choice, entries) =>
    choice.replaceChildren(...entries.map(([value, name]) => html("option", { value }, name)));

  const subjects = atlas.subjects.map((subject, index) => ({ ...subject, index }));
  const writers = subjects.filter((subject) => subject.role === "writer");
  const entry = ({ index, name }) => [index, name];
  options(storedBy, (writers.length ? writers : subjects).map(entry));
  options(lookedForBy, [
    ...subjects.filter((subject) => writers.length && subject.role === "reader").map(entry),
    [DECLARED, "what is declared"],
    ...Object.keys(atlas.layouts).map((name) => [name, `layout ${name}`]),
  ]);
  options(geometryChoice, atlas.geometries.map((geometry, index) => [index, geometry.name]));
  sideChoices[SIDES.indexOf("K")].checked = true;

  for (const found of document.querySelectorAll("td[data-writer]")) {
    const { writer, reader } = found.dataset;
    const button = html("button", { type: "button", title: "Draw these planes" });
    button.append(...found.childNodes);
    button.querySelector("a")?.replaceWith(...button.querySelector("a").childNodes);
    button.addEventListener("click", () => {
      showPair(Number(writer), Number(reader));
      byId("explorer").closest("section").scrollIntoView();
    });
    found.replaceChildren(button);
  }
  byId("bar").append(document.querySelector("#page-bar .page-bar").cloneNode(true));
  byId("choices").addEventListener("change", draw);
  byId("choices").addEventListener("submit", (event) => event.preventDefault());
  byId("panels").addEventListener("pointerover", lookAt);
  byId("panels").addEventListener("focusin", lookAt);
  byId("panels").addEventListener("keydown", move);
  byId("explorer").hidden = false;
  const differing = atlas.pairs.find(([, , sides]) => sides.flat().some((count) => count > 0));
  if (atlas.fault) show(atlas.fault[0], DECLARED, atlas.fault[1], atlas.fault[2]);
  else if (differing) showPair(differing[0], differing[1]);
  else draw();

  // Paper has nothing to unfold.
  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...folded()];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
  });
})();
