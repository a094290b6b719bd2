// Light or dark, as the system is set until the button is pressed.

const darkWanted = window.matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : darkWanted.matches;
}

// If a page may store nothing (some browsers, for file:// pages), the choice lasts as long as the page.
function remembered() {
  try {
    return localStorage.getItem("ratchet-theme");
  } catch {
    return null;
  }
}

function showTheme(redraw) {
  const button = byId("theme");
  button.setAttribute("aria-pressed", String(isDark()));
  colours.clear();
  redraw();
}

function startTheme(redraw) {
  const known = remembered();
  if (known === "light" || known === "dark") document.documentElement.dataset.theme = known;
  byId("theme").addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("ratchet-theme", chosen);
    } catch {
      // Nothing can be stored here; the page shows the choice all the same.
    }
    showTheme(redraw);
  });
  darkWanted.addEventListener("change", () => showTheme(redraw));
  byId("theme").setAttribute("aria-pressed", String(isDark()));
}

const colours = new Map();

// A colour of the style sheet as the charts need it: resolved for the theme that is shown.
function colour(name) {
  if (!colours.has(name)) {
    const probe = make("span", { style: `color: var(--${name})` });
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}
