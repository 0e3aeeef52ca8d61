// The chat page: one conversation with the server that sent this file. No library, no request elsewhere.
"use strict";

const byId = (id) => document.getElementById(id);
const ui = {
  model: byId("model"), dot: byId("dot"), loading: byId("loading"), newChat: byId("new-chat"),
  welcome: byId("welcome"), log: byId("log"), composer: byId("composer"), prompt: byId("prompt"),
  think: byId("think"), settings: byId("settings"), system: byId("system"), temperature: byId("temperature"),
  maxTokens: byId("max-tokens"), apiKey: byId("api-key"), speed: byId("speed"), send: byId("send"),
  stop: byId("stop"), announcer: byId("announcer"),
};

let ready = false;      // the server takes requests
let modelName = "";
let history = [];       // {role, content}, as the API takes them
let running = null;     // AbortController of the answer being written

// --- the server's state ----------------------------------------------------------------------------------------------

function headers() {
  const key = ui.apiKey.value.trim();
  return key ? {"Authorization": "Bearer " + key} : {};
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function watchServer() {
  for (;;) {
    let wait = 500;
    try {
      const health = await fetch("/health", {cache: "no-store"});
      const state = await health.json();
      if (health.ok && !modelName) await readModel();
      setReady(health.ok);
      ui.loading.hidden = state.status !== "loading";
      ui.loading.value = state.progress || 0;
      if (!health.ok) {
        ui.model.textContent = state.status === "loading"
          ? `${state.model} is loading, ${Math.round(100 * (state.progress || 0))} %` : `${state.model} is ${state.status}`;
      } else if (modelName) {
        ui.model.textContent = modelName;
        wait = 10000;
      }
    } catch {
      setReady(false, true);
      ui.model.textContent = "the server does not answer";
      wait = 2000;
    }
    await pause(wait);
  }
}

async function readModel() {
  const response = await fetch("/v1/models", {headers: headers()});
  if (response.status === 401) {
    ui.model.textContent = "this server asks for an API key, see Settings";
    return;
  }
  if (response.ok) modelName = (await response.json()).data[0].id;
}

function setReady(value, failed = false) {
  ready = value;
  ui.dot.className = "dot" + (value ? " ready" : failed ? " failed" : "");
  showButtons();
}

function showButtons() {
  ui.send.hidden = running !== null;
  ui.stop.hidden = running === null;
  ui.send.disabled = !ready || ui.prompt.value.trim() === "";
}

// --- showing text ----------------------------------------------------------------------------------------------------

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// Inline code and bold. Text only ever becomes text nodes: nothing the model writes is markup.
function appendInline(parent, text) {
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (part.length > 2 && part.startsWith("`")) parent.append(element("code", "", part.slice(1, -1)));
    else if (part.length > 4 && part.startsWith("**")) parent.append(element("strong", "", part.slice(2, -2)));
    else if (part) parent.append(part);
  }
}

// Fenced blocks become <pre>; everything else keeps its line breaks.
function showText(target, text) {
  target.replaceChildren();
  text.split(/^```[^\n]*\n?/m).forEach((part, index) => {
    if (index % 2 === 1) {
      const block = element("pre");
      block.append(element("code", "", part.replace(/\n$/, "")));
      block.tabIndex = 0;
      target.append(block);
    } else if (part) {
      appendInline(target, index > 0 ? part.replace(/^\n/, "") : part);
    }
  });
}

const nearBottom = () => window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 120;
const toBottom = () => window.scrollTo({top: document.documentElement.scrollHeight});

function addUserMessage(text) {
  ui.welcome.hidden = true;
  const message = element("article", "message user", text);
  message.setAttribute("aria-label", "You");
  ui.log.append(message);
}

// One answer on the page; shows what has come at most once a frame.
class AnswerView {
  constructor() {
    this.content = "";
    this.reasoning = "";
    this.root = element("article", "message assistant working");
    this.root.setAttribute("aria-label", "Answer");
    this.wait = element("span", "wait");
    this.root.append(this.wait);
    ui.log.append(this.root);
    toBottom();
  }

  add(delta) {
    this.reasoning += delta.reasoning_content || "";
    this.content += delta.content || "";
    for (const call of delta.tool_calls || []) this.content += `\n${call.function.name}(${call.function.arguments})`;
    this.frame ??= requestAnimationFrame(() => this.show());
  }

  show() {
    this.frame = undefined;
    const follow = nearBottom();
    if (this.reasoning && !this.thinking) {
      this.thinking = element("details", "thinking");
      this.thinking.append(element("summary", "", "Thinking"), element("div"));
      this.thinking.open = true;
      this.root.append(this.thinking);
    }
    if (this.thinking) this.thinking.lastChild.textContent = this.reasoning.trim();
    if (this.content && !this.text) {
      if (this.thinking) this.thinking.open = false;
      this.text = element("div", "text");
      this.root.append(this.text);
      this.root.classList.add("answering");
    }
    if (this.text) showText(this.text, this.content);
    if (follow) toBottom();
  }

  end(note, failure) {
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.show();
    this.wait.remove();
    this.root.classList.remove("working");
    if (this.thinking) this.thinking.firstChild.textContent = "Thoughts";
    if (failure) {
      const line = element("p", "failure", failure);
      line.setAttribute("role", "alert");
      this.root.append(line);
    }
    if (note) this.root.append(element("p", "note", note));
    if (nearBottom()) toBottom();
  }
}

// --- one answer ------------------------------------------------------------------------------------------------------

function requestBody(conversation) {
  const system = ui.system.value.trim();
  const body = {
    model: modelName,
    messages: system ? [{role: "system", content: system}, ...conversation] : conversation,
    stream: true,
    stream_options: {include_usage: true},
  };
  if (ui.think.checked) body.thinking = {type: "enabled"};
  if (ui.temperature.value !== "") body.temperature = Number(ui.temperature.value);
  if (ui.maxTokens.value !== "") body.max_tokens = Number(ui.maxTokens.value);
  return body;
}

async function failureOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// Calls `take` with each event's object.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") take(JSON.parse(line.slice(6)));
    }
  }
}

function speedText(tokens, seconds) {
  return tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(tokens > 20 ? 0 : 1)} tokens/s` : "";
}

async function answer(text) {
  const conversation = history;  // "New chat" puts another one in its place
  conversation.push({role: "user", content: text});
  addUserMessage(text);
  const view = new AnswerView();
  running = new AbortController();
  showButtons();
  ui.announcer.textContent = "Answering";
  const begin = performance.now();
  let first = 0, last = 0, pieces = 0, usage = null, failure = "", note = "";
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: {"Content-Type": "application/json", ...headers()},
      body: JSON.stringify(requestBody(conversation)),
      signal: running.signal,
    });
    if (!response.ok) throw new Error(await failureOf(response));
    await readEvents(response, (event) => {
      if (event.error) failure = event.error.message;
      usage = event.usage || usage;
      const delta = event.choices?.[0]?.delta;
      if (!delta) return;
      if (event.choices[0].finish_reason === "length") note = "cut at the longest answer";
      if (!(delta.content || delta.reasoning_content || delta.tool_calls)) return;
      last = performance.now();
      first ||= last;
      ++pieces;
      view.add(delta);
      ui.speed.textContent = speedText(pieces, (last - first) / 1000);
    });
  } catch (error) {
    if (error.name === "AbortError") note = "stopped";
    else failure = error.message;
  }
  running = null;
  const tokens = usage ? usage.completion_tokens : pieces;
  ui.speed.textContent = speedText(tokens, (last - first) / 1000) || ui.speed.textContent;
  const facts = first ? [`${tokens} ${tokens === 1 ? "token" : "tokens"}`, ui.speed.textContent,
                         `first after ${Math.round(first - begin)} ms`] : [];
  view.end([...facts, note].filter(Boolean).join(" · "), failure);
  if (view.content) conversation.push({role: "assistant", content: view.content});
  else conversation.pop();  // nothing to go on from
  ui.announcer.textContent = failure || view.content || "No answer";
  showButtons();
}

function stop() {
  running?.abort();
}

// --- the controls ----------------------------------------------------------------------------------------------------

function submit() {
  const text = ui.prompt.value.trim();
  if (!text || !ready || running) return;
  ui.prompt.value = "";
  fitPrompt();
  answer(text);
}

// For browsers that do not size text areas by their content.
function fitPrompt() {
  if (CSS.supports("field-sizing", "content")) return;
  ui.prompt.style.height = "auto";
  ui.prompt.style.height = ui.prompt.scrollHeight + "px";
}

ui.composer.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
ui.prompt.addEventListener("input", () => {
  fitPrompt();
  showButtons();
});
ui.prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (ui.settings.open) {
    ui.settings.open = false;
    ui.settings.firstElementChild.focus();
  } else if (running) {
    stop();
    ui.prompt.focus();
  }
});
document.addEventListener("click", (event) => {
  if (ui.settings.open && !ui.settings.contains(event.target)) ui.settings.open = false;
});
ui.stop.addEventListener("click", () => {
  stop();
  ui.prompt.focus();
});
ui.newChat.addEventListener("click", () => {
  stop();
  history = [];
  ui.log.replaceChildren();
  ui.welcome.hidden = false;
  ui.speed.textContent = "";
  ui.announcer.textContent = "";
  ui.prompt.focus();
});
for (const example of document.querySelectorAll(".example")) {
  example.addEventListener("click", () => {
    ui.prompt.value = example.textContent;
    submit();
    ui.prompt.focus();
  });
}
ui.apiKey.addEventListener("change", () => {
  sessionStorage.setItem("api-key", ui.apiKey.value);
  readModel();
});

ui.apiKey.value = sessionStorage.getItem("api-key") || "";
watchServer();
