"use strict";
// `ciphertoll predict` in the page: interpolates between the loads that the program has predicted.
{
  const panel = document.getElementById("what-if-panel");
  const model = JSON.parse(panel.dataset.model);

  // ---- tables: an entry is a value with half of the width of its interval (or null), or the number of a missing term

  const isMissing = (entry) => typeof entry === "number";

  /** Indices with their weights: the neighbours of a position on an axis, or the nearest end. */
  const neighbours = (axis, position) => {
    const above = axis.findIndex((knot) => knot >= position);
    if (above === -1) return [[axis.length - 1, 1]];
    if (above === 0 || axis[above] === position) return [[above, 1]];
    const share = (position - axis[above - 1]) / (axis[above] - axis[above - 1]);
    return [[above - 1, 1 - share], [above, share]];
  };

  /** The weighted mean of the entries around a position on each axis; a missing one makes it missing. */
  const interpolate = (table, [weighted, ...further]) => {
    if (weighted === undefined) return table;
    const parts = weighted.map(([index, weight]) => ({ entry: interpolate(table[index], further), weight }));
    const missing = parts.find(({ entry }) => isMissing(entry));
    if (missing !== undefined) return missing.entry;
    const mean = (part) => parts.reduce((sum, { entry, weight }) => sum + entry[part] * weight, 0);
    const hasInterval = parts.every(({ entry }) => entry[1] !== null);
    return [mean(0), hasInterval ? mean(1) : null];
  };

  /** A value with the limits of its interval; undefined if it is missing. */
  const estimate = (entry, factor = 1) => {
    if (entry === undefined || isMissing(entry)) return undefined;
    const [value, half] = entry;
    const limits = half === null ? [null, null] : [Math.max(value - half, 0) * factor, (value + half) * factor];
    return { value: value * factor, low: limits[0], high: limits[1] };
  };

  const inverse = (found) => {
    if (found === undefined) return undefined;
    const limit = (limit) => (limit === null ? null : 1 / limit);
    return { value: 1 / found.value, low: limit(found.high), high: limit(found.low) };
  };

  const predict = (profile, { connectsPerS, queriesPerConnection, rttMs, cores }) => {
    const queries = neighbours(model.queries, queriesPerConnection);
    const link = neighbours(model.rttMs, rttMs);
    const session = interpolate(profile.sessionNs, [link, queries]);
    const local = interpolate(profile.sessionNs[0], [queries]);
    const concurrency = isMissing(local) ? Infinity : connectsPerS * local[0] * 1e-9;
    const clients = neighbours(profile.clients.map(Math.log), Math.log(concurrency));
    const cpu = rttMs > 0 ? profile.linkCpu : profile.localCpu;
    const ofRole = (role) => cpu.us[role] && interpolate(cpu.us[role], [clients, queries]);
    const connect = interpolate(profile.connectNs, [link]);
    const query = interpolate(profile.queryNs, [link]);
    const total = ofRole("total");
    const used = interpolate(cpu.coreSeconds, [clients, queries]);
    return {
      times: [connect, query, session].map((entry) => estimate(entry)),
      throughput: inverse(estimate(used, 1 / cores)),
      total: estimate(total),
      cores: ["client", "middle", "server"].map((role) => estimate(ofRole(role), connectsPerS * 1e-6)),
      missing: [connect, query, session, total, used].filter(isMissing),
    };
  };

  // ---- words

  /** Three significant digits, never in exponents. */
  const significant = (value) => {
    if (value === Infinity) return "∞";
    if (value >= 999.5) return value.toFixed(0);
    return value < 1e-4 && value > 0 ? value.toFixed(6) : value.toPrecision(3);
  };

  const UNITS = {
    ns: [[1e9, " s"], [1e6, " ms"], [1e3, " µs"]],
    cpuUs: [[1e6, " s"], [1e3, " ms"], [1, " µs"]],
    perS: [[1e6, " M/s"], [1e3, " k/s"], [1, " /s"]],
    number: [[1, ""]],
  };

  const uncertainty = ({ value, low, high }, factor) => {
    if (low === null) return "no interval";
    const percent = (Math.max(high - value, value - low) / value) * 100;
    if (percent > model.widestPlusMinus * 100) return `${significant(low / factor)}–${significant(high / factor)}`;
    return `±${Math.max(Number(percent.toFixed(percent < 9.95 ? 1 : 0)), 0.1)} %`;
  };

  /** The lines of a field: a value over its interval. */
  const field = (unit, found) => {
    if (found === undefined) return ["–"];
    const units = UNITS[unit];
    const [factor, name] = units.find(([factor]) => found.value >= factor * 0.9995) ?? units[units.length - 1];
    return [significant(found.value / factor) + name, uncertainty(found, factor)];
  };

  const row = ({ times, throughput, total, cores }) => [
    ...times.map((time) => field("ns", time)),
    field("perS", throughput),
    field("cpuUs", total),
    ...cores.map((found) => field("number", found)),
  ];

  const notes = ({ calibration, profiles }, predictions, { connectsPerS }) => {
    const labels = (is) => profiles.filter((_, index) => is(predictions[index])).map(({ label }) => label).join(", ");
    const lines = [];
    const limited = labels(({ throughput }) => throughput !== undefined);
    if (limited !== "") lines.push(`Limited by the server's cores: ${limited}.`, model.assumption);
    const overloaded = labels(({ throughput }) => throughput?.value < connectsPerS);
    if (overloaded !== "") lines.push(`More than it can serve: ${overloaded}.`);
    const terms = [...new Set(predictions.flatMap(({ missing }) => [...missing].sort()))];
    for (const term of terms) {
      const without = labels(({ missing }) => missing.includes(term));
      lines.push(`Not predicted for ${without}: the run lacks ${model.terms[term].words}.`);
    }
    if (terms.some((term) => model.terms[term].isCalibrated)) lines.push(`To measure what is missing: ${calibration}`);
    return lines;
  };

  // ---- the page

  const blocks = [...panel.querySelectorAll("[data-predictions]")];
  const inputs = [...panel.querySelectorAll("input")];
  const command = document.getElementById("what-if-command");
  const status = document.getElementById("what-if-status");

  const created = (name, className, text) => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return element;
  };
  /** Without breaks, as in the rest of the page. */
  const unbroken = (text) => text.replaceAll(" ", "\u00a0").replaceAll("–", "–\u2060");

  /** Hides the columns that the run has no term for. */
  const hideEmpty = ([head, ...rows]) => {
    [...head.children].forEach((heading, column) => {
      const cells = rows.map(({ children }) => children[column]);
      const isEmpty = cells.every(({ textContent }) => textContent.startsWith("–"));
      for (const cell of [heading, ...cells]) cell.hidden = isEmpty;
    });
  };

  const show = (load) => {
    model.servers.forEach((server, number) => {
      const predictions = server.profiles.map((profile) => predict(profile, load));
      const rows = blocks[number].querySelectorAll("tbody tr");
      predictions.forEach((found, index) => {
        const cells = rows[index].querySelectorAll("td");
        row(found).forEach(([value, interval = ""], column) => {
          const lines = [created("span", "value", unbroken(value)), created("span", "beside", unbroken(interval))];
          cells[column].replaceChildren(...lines.filter(({ textContent }) => textContent !== ""));
        });
      });
      hideEmpty(blocks[number].querySelectorAll("tr"));
      const lines = notes(server, predictions, load).map((note) => created("p", "note", note));
      blocks[number].querySelector(".predicted-notes").replaceChildren(...lines);
    });
  };

  const isValid = (input, value) => value >= Number(input.min) && value <= Number(input.max);

  /** Whether every field is valid; otherwise the tables stay those of the last valid load. */
  const update = () => {
    for (const input of inputs) input.setAttribute("aria-invalid", String(!isValid(input, input.valueAsNumber)));
    const wrong = inputs.find((input) => input.getAttribute("aria-invalid") === "true");
    status.textContent = "";
    if (wrong !== undefined) {
      const { textContent } = wrong.labels[0];
      const range = `${textContent}: a number from ${wrong.min} to ${wrong.max}.`;
      status.textContent = `${range} The tables show the last valid load.`;
      return false;
    }
    const [connectsPerS, queriesPerConnection, rttMs, cores] = inputs.map((input) => input.valueAsNumber);
    show({ connectsPerS, queriesPerConnection, rttMs, cores });
    const options = inputs.map(({ dataset, valueAsNumber }) => ` ${dataset.option} ${valueAsNumber}${dataset.unit}`);
    command.textContent = command.dataset.start + options.join("");
    return true;
  };

  const FRAGMENT = "#what-if?";
  const readFragment = () => {
    if (!location.hash.startsWith(FRAGMENT)) return;
    const given = new URLSearchParams(location.hash.slice(FRAGMENT.length));
    for (const input of inputs) {
      const text = given.get(input.name) ?? "";
      if (/^\d+(\.\d+)?$/.test(text) && isValid(input, Number(text))) input.value = text;
    }
    document.getElementById("what-if").scrollIntoView({ behavior: "instant" });
  };

  panel.querySelector(".fields").hidden = false;
  panel.querySelector("[data-without-script]").hidden = true;
  for (const input of inputs) {
    input.addEventListener("input", () => {
      if (!update()) return;
      const load = new URLSearchParams(inputs.map(({ name, valueAsNumber }) => [name, valueAsNumber]));
      history.replaceState(null, "", FRAGMENT + load);
    });
  }
  addEventListener("hashchange", () => {
    readFragment();
    update();
  });
  readFragment();
  update();
}
