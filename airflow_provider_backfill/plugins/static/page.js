// Keeps the page live, opens what is chosen without a reload, and sends what people do.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  const LONGEST = 60;
  let tag = null;
  let pause = Number(live.dataset.next);
  let timer = 0;
  let newest = 0;

  const say = (text) => {
    said.textContent = text;
  };

  // Looking again

  const plan = () => {
    clearTimeout(timer);
    if (pause > 0 && !document.hidden) {
      timer = setTimeout(look, pause * 1000);
    }
  };

  const fetched = async (address) => {
    const mine = ++newest;
    const headers = { "X-Backfill-Fragment": "1" };
    if (tag !== null) {
      headers["If-None-Match"] = tag;
    }
    const answer = await fetch(address, { headers, credentials: "same-origin", cache: "no-store" });
    if (answer.status === 304) {
      return { answer, text: null };
    }
    const text = await answer.text();
    // A later choice has been made meanwhile.
    return mine === newest ? { answer, text } : null;
  };

  const show = (text) => {
    const open = new Map([...live.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const focused = document.activeElement;
    const mark = focused !== null && live.contains(focused) ? { id: focused.id, at: focused.getAttribute("href") } : null;
    const scrolled = [...live.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    live.innerHTML = text;
    for (const [id, was] of open) {
      const details = document.getElementById(id);
      if (details !== null) {
        details.open = was;
      }
    }
    [...live.querySelectorAll(".scroll")].forEach((each, number) => {
      each.scrollLeft = scrolled[number] ?? 0;
    });
    ready();
    if (mark !== null) {
      const same = mark.id ? document.getElementById(mark.id) : mark.at ? live.querySelector(`a[href="${CSS.escape(mark.at)}"]`) : null;
      if (same !== null) {
        same.focus({ preventScroll: true });
      }
    }
  };

  const look = async () => {
    try {
      const got = await fetched(location.href.split("#")[0]);
      if (got === null) {
        return;
      }
      const { answer, text } = got;
      const next = Number(answer.headers.get("X-Backfill-Next") ?? pause);
      if (answer.status === 304) {
        // Nothing has changed: ask less and less often.
        pause = next === 0 ? 0 : Math.min(LONGEST, Math.max(next, pause * 1.5));
      } else if (answer.ok) {
        if (live.dataset.failed !== undefined) {
          location.reload();
          return;
        }
        tag = answer.headers.get("ETag");
        pause = next;
        show(text);
        say("");
      } else {
        pause = Math.min(LONGEST, Math.max(5, pause * 2));
        say(answer.status === 401 ? "You are logged out. Reload the page to log in." : `Shown as it was: ${reason(text)}`);
      }
    } catch {
      pause = Math.min(LONGEST, Math.max(5, pause * 2));
      say("Airflow does not answer. Shown as it was.");
    }
    plan();
  };

  const reason = (text) => {
    try {
      const { detail } = JSON.parse(text);
      return typeof detail === "string" ? detail : detail.map((each) => each.msg).join("; ");
    } catch {
      return "the answer cannot be read";
    }
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
    } else if (pause > 0) {
      look();
    }
  });

  // Opening what is chosen

  const open = async (address) => {
    tag = null;
    const got = await fetched(address.split("#")[0]);
    if (got === null) {
      return;
    }
    if (!got.answer.ok) {
      say(reason(got.text));
      return;
    }
    history.replaceState(null, "", address);
    tag = got.answer.headers.get("ETag");
    pause = Number(got.answer.headers.get("X-Backfill-Next") ?? 0);
    show(got.text);
    const target = document.getElementById(address.split("#")[1] ?? "");
    if (target !== null) {
      target.focus({ preventScroll: true });
      target.scrollIntoView({ block: "nearest" });
    }
    plan();
  };

  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) {
      return;
    }
    if (link.dataset.soft !== undefined) {
      event.preventDefault();
      open(link.href);
    } else if (link.dataset.airflow !== undefined && window.parent !== window) {
      // The frame may not navigate what is around it; a link that stands there may.
      event.preventDefault();
      const outside = window.parent.document.createElement("a");
      outside.href = link.href;
      window.parent.document.body.append(outside);
      outside.click();
      outside.remove();
    }
  });

  // The grid by keyboard: one stop for Tab, arrows within

  const ready = () => {
    const cells = [...live.querySelectorAll("[role=gridcell]")];
    const first = live.querySelector("[role=gridcell].here") ?? cells[0];
    if (first !== undefined) {
      first.tabIndex = 0;
    }
  };

  document.addEventListener("keydown", (event) => {
    const cell = event.target instanceof Element ? event.target.closest("[role=gridcell]") : null;
    if (cell === null) {
      return;
    }
    const cells = [...live.querySelectorAll("[role=gridcell]")];
    const at = cells.indexOf(cell);
    const row = cell.closest("[role=row]");
    const beside = (other) => {
      const column = [...row.querySelectorAll("i, [role=gridcell]")].indexOf(cell);
      const places = other === null ? [] : [...other.querySelectorAll("i, [role=gridcell]")];
      const found = places[Math.min(column, places.length - 1)];
      return found === undefined || found.tagName === "I" ? other?.querySelector("[role=gridcell]") : found;
    };
    const moves = {
      ArrowLeft: () => cells[at - 1],
      ArrowRight: () => cells[at + 1],
      ArrowUp: () => beside(row.previousElementSibling),
      ArrowDown: () => beside(row.nextElementSibling),
      Home: () => cells[0],
      End: () => cells[cells.length - 1],
    };
    const move = moves[event.key];
    if (move === undefined) {
      return;
    }
    event.preventDefault();
    const next = move();
    if (next) {
      cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  });

  // Doing something, once it is confirmed

  const dialog = document.getElementById("ask");
  let pressed = null;

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-act]") : null;
    if (button === null || dialog === null) {
      return;
    }
    pressed = { ...button.dataset };
    const form = dialog.querySelector("form");
    form.reset();
    dialog.querySelector("#ask-text").textContent = pressed.ask;
    for (const field of dialog.querySelectorAll("[data-for]")) {
      field.hidden = pressed[field.dataset.for] === undefined;
    }
    form.elements.reason.required = pressed.reason === "needed";
    trouble("");
    dialog.showModal();
  });

  const trouble = (text) => {
    const line = dialog.querySelector("[role=alert]");
    line.textContent = text;
    line.hidden = text === "";
  };

  const body = (form) => {
    const made = {};
    if (pressed.reason !== undefined && form.elements.reason.value.trim() !== "") {
      made.reason = form.elements.reason.value;
    }
    if (pressed.mark !== undefined) {
      made.mark = pressed.mark;
    }
    if (pressed.act === "release") {
      made.chunk_id = pressed.chunk;
      made.attempt = Number(pressed.attempt);
    } else if (pressed.chunk !== undefined) {
      made.chunk_ids = [pressed.chunk];
    }
    for (const name of ["start", "end"]) {
      if (pressed.range !== undefined && form.elements[name].value.trim() !== "") {
        made[name] = form.elements[name].value.trim();
      }
    }
    return made;
  };

  dialog?.addEventListener("submit", async (event) => {
    if (event.submitter?.value !== "yes") {
      return;
    }
    event.preventDefault();
    const form = event.target;
    event.submitter.disabled = true;
    try {
      const answer = await fetch(`${live.dataset.api}/${pressed.act}`, {
        method: "POST",
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", "X-Backfill-Token": document.body.dataset.token },
        body: JSON.stringify(body(form)),
      });
      const text = await answer.text();
      if (!answer.ok) {
        trouble(reason(text));
        return;
      }
      const done = JSON.parse(text);
      dialog.close();
      await open(location.href);
      const left = done.left.slice(0, 3).map((each) => `chunk ${Number(each.chunk_id) + 1}: ${each.why}`);
      say([done.message, ...left].join("; "));
    } catch {
      trouble("Airflow does not answer. Reload the page to see whether it was done.");
    } finally {
      event.submitter.disabled = false;
    }
  });

  ready();
  plan();
})();
