// Light or dark: the system's choice until the user makes another.

export function setUpTheme(button, changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const theme = localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    changed();
  };
  button.addEventListener("click", () => {
    const isDark = document.documentElement.dataset.theme === "dark";
    const chosen = isDark ? "light" : "dark";
    if ((chosen === "dark") === system.matches) localStorage.removeItem("theme"); // the system's choice again
    else localStorage.setItem("theme", chosen);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
