// Runs before anything is drawn, so that a page in the dark does not flash.
try {
  const theme = localStorage.getItem("bitloom.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page follows the system.
}
