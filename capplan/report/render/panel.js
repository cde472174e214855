// The bill as a reader sets it: prices multiply it, choices select what was simulated.
function billed(panel, set) {
  let at = 0; // of the cell: the last choice changes fastest
  panel.choices.forEach(([, options], i) => { at = at * options.length + set.choices[i]; });
  const [months, note, isHourly] = panel.cells[at];
  const share = (1 - set.discount / 100) * (isHourly ? set.hours / 24 : 1);
  const factors = panel.prices.map(([, planned], i) => set.prices[i] / planned);
  const usd = months.map((month) =>
    share * month.reduce((sum, part, i) => sum + part * (factors[i] ?? 1), 0));
  return { usd, note, isHourly };
}

// Whole amounts; a half goes to the even one, as in all other figures of the page.
function amount(panel, usd) {
  const above = Math.round(usd);
  const whole = above - usd === 0.5 && above % 2 ? above - 1 : above;
  return panel.symbol + whole.toLocaleString("en-US");
}

function follow(root) {
  const panel = JSON.parse(root.querySelector("script").textContent);
  const named = (name) => [...root.querySelectorAll(`[name=${name}]`)];
  const inputs = [...root.querySelectorAll("input, select")];
  const [first, all] = root.querySelectorAll(".bill b"), [, title] = root.querySelectorAll(".bill span");
  const most = Math.max(...billed(panel, read()).usd);

  function read() {
    return {
      choices: named("choice").map((select) => Number(select.value)),
      prices: named("price").map((input, i) => // as planned it is not rounded
        input.value === input.defaultValue ? panel.prices[i][1] : Math.max(0, Number(input.value))),
      discount: Number(named("discount")[0]?.value ?? 0),
      hours: Number(named("hours")[0]?.value ?? 24),
    };
  }

  function show() {
    const set = read(), bill = billed(panel, set), count = bill.usd.length;
    const sum = bill.usd.reduce((a, b) => a + b, 0), top = Math.max(most, ...bill.usd, 1e-9);
    for (const [name, unit] of [["discount", " %"], ["hours", " h"]])
      named(name).forEach((input) => { input.previousElementSibling.textContent = input.value + unit; });
    named("hours").forEach((input) => { input.disabled = !bill.isHourly; });
    first.textContent = count ? amount(panel, bill.usd[0]) : "–";
    all.textContent = count ? amount(panel, sum) : "–";
    title.textContent = count === 12 || !count ? "Twelve months" : `${count} months`;
    root.querySelector("svg").innerHTML = bill.usd.map((usd, i) =>
      `<rect x="${10 * i + 1}" y="${40 - 40 * usd / top}" width="8" height="${40 * usd / top}"/>`).join("");
    root.querySelector(".bill .note").textContent = bill.note +
      (bill.isHourly && set.hours < 24 ? " In the other hours nothing is served." : "");
  }

  inputs.forEach((x) => x.addEventListener("input", show));
  root.querySelector("button").addEventListener("click", () => {
    inputs.forEach((x) => { if (x.options) x.selectedIndex = 0; else x.value = x.defaultValue; });
    show();
  });
  root.querySelector(".set").hidden = false, show();
}

if (typeof document !== "undefined") document.querySelectorAll(".panel").forEach(follow);
