#include "audit/json_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "audit/file_kind.h"
#include "audit/json_walk.h"
#include "audit/template_scan.h"
#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

using checkpoint::quote;

constexpr std::size_t kMostOfAKind = 8;

bool has(const JsonPath& path, std::string_view name) {
  return std::find(path.begin(), path.end(), name) != path.end();
}

class Check {
 public:
  Check(std::string_view name, std::vector<Finding>& findings, JsonFacts& facts)
      : is_template_file_(name.ends_with("chat_template.json")),
        findings_(findings),
        facts_(facts) {}

  void string(const JsonPath& path, std::string_view text) {
    if (path.empty()) return;
    if (has(path, "auto_map")) return auto_map(path, text);
    const std::string& last = path.back();
    if (has(path, "custom_pipelines") && last == "impl")
      return reference(path, fmt::format("a pipeline of its own, {}", quote(text)));
    if (last == "_target_")
      return reference(path, fmt::format("{}, which some loaders import and call", quote(text)));
    const bool attention = last == "attn_implementation" || last == "_attn_implementation" ||
                           last == "_attn_implementation_internal" ||
                           last == "_attn_implementation_autoset";
    if (attention && text.find('/') != std::string_view::npos)
      return reference(path, fmt::format("a kernel to fetch and load, {}", quote(text)));
    if (last == "quant_method" && (text == "exl3" || text == "exl2" || text == "gguf"))
      return add(findings_, Code::kOtherFormat,
                 fmt::format("{} weights; `nibble inspect` says what can be served", text),
                 path_text(path));
    if (is_template_file_ || has(path, "chat_template") || has(path, "default_chat_template"))
      check_template(text, path_text(path), findings_);
  }

 private:
  void auto_map(const JsonPath& path, std::string_view text) {
    // "MODULE.Class", or "OWNER/NAME--MODULE.Class" for a module of another repository.
    const std::size_t dashes = text.find("--");
    const std::size_t dot = text.find('.', dashes == std::string_view::npos ? 0 : dashes);
    const std::string_view module = text.substr(0, dot);
    const bool elsewhere = dashes != std::string_view::npos;
    if (!elsewhere && !module.empty()) facts_.modules.push_back(std::string(module) + ".py");
    if (auto_maps_++ >= kMostOfAKind) return;
    add(findings_, Code::kAutoMap,
        elsewhere
            ? fmt::format("asks the loader to run {}, code of another repository", quote(text))
            : fmt::format("asks the loader to run {}", quote(text)),
        path_text(path));
  }

  void reference(const JsonPath& path, const std::string& what) {
    if (references_++ >= kMostOfAKind) return;
    add(findings_, Code::kCodeReference, "names code for the loader: " + what, path_text(path));
  }

  bool is_template_file_;
  std::vector<Finding>& findings_;
  JsonFacts& facts_;
  std::size_t auto_maps_ = 0;
  std::size_t references_ = 0;
};

}  // namespace

void add_damage(std::string_view name, std::vector<Finding>& findings, Code code,
                std::string message, std::string where) {
  if (matters(name))
    add(findings, code, std::move(message), std::move(where));
  else
    add_note(findings, code, std::move(message), std::move(where));
}

void check_template(std::string_view text, const std::string& where,
                    std::vector<Finding>& findings) {
  const auto place = [&](int line) {
    return where.empty() ? fmt::format("line {}", line) : fmt::format("{}: line {}", where, line);
  };
  if (text.size() > kMaxTemplateBytes)
    return add(
        findings, Code::kTooLarge,
        fmt::format("a template of {} bytes, expected at most {}", text.size(), kMaxTemplateBytes),
        where);
  const TemplateScan scan = scan_template(text);
  for (const TemplateHit& hit : scan.hits) add(findings, hit.code, hit.why, place(hit.line));
  if (!scan.problem.empty())
    add(findings, Code::kTemplateBroken, fmt::format("no Jinja template: {}", scan.problem), where);
}

JsonFacts check_json(std::string_view name, std::string_view text, std::vector<Finding>& findings) {
  JsonFacts facts;
  Check check(name, findings, facts);
  const auto problem = walk_json(
      text, [&](const JsonPath& path, std::string_view value) { check.string(path, value); });
  if (problem) add_damage(name, findings, problem->code, problem->message);
  return facts;
}

}  // namespace nibble::audit
