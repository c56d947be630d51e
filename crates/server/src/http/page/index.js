// The list of streams: whole addresses, buttons that copy them, and a list that stays up to date.

const REFRESH_MS = 5000;
const SAID_MS = 1500;

function complete(list) {
  for (const code of list.querySelectorAll("code[data-here]")) {
    code.textContent = new URL(code.textContent, location.href).href;
  }
}

async function copy(button) {
  const text = button.previousElementSibling.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS there is no clipboard: select the text, so that the person can copy it.
    getSelection().selectAllChildren(button.previousElementSibling);
    return;
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), SAID_MS);
}

async function refresh(list) {
  if (document.hidden || list.contains(document.activeElement) || !getSelection().isCollapsed) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("streams");
  complete(fresh);
  if (fresh.innerHTML !== list.innerHTML) list.replaceChildren(...fresh.childNodes);
}

const list = document.getElementById("streams");
complete(list);
list.addEventListener("click", (event) => {
  if (event.target.matches("button.copy")) copy(event.target);
});
setInterval(() => refresh(list), REFRESH_MS);
