// The theme that Airflow is shown in, before anything is drawn.
(() => {
  "use strict";
  const root = document.documentElement;

  const outside = () => {
    try {
      return window.parent === window ? null : window.parent.document.documentElement;
    } catch {
      return null; // Framed by another site, which the browser refuses anyway.
    }
  };

  const follow = () => {
    const frame = outside();
    let theme = null;
    if (frame !== null && (frame.classList.contains("dark") || frame.classList.contains("light"))) {
      theme = frame.classList.contains("dark") ? "dark" : "light";
    } else {
      try {
        theme = localStorage.getItem("theme");
      } catch {
        // Without storage the system's choice counts.
      }
    }
    if (theme === "dark" || theme === "light") {
      root.dataset.theme = theme;
    } else {
      delete root.dataset.theme;
    }
  };

  follow();
  const frame = outside();
  if (frame !== null) {
    // Airflow's own background shows through.
    root.dataset.framed = "";
    new MutationObserver(follow).observe(frame, { attributes: true, attributeFilter: ["class"] });
  }
  window.addEventListener("storage", follow);
})();
