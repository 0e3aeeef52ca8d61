// What a JSON file of a checkpoint asks its loader to do: import modules, fetch code, render a template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "audit/report.h"

namespace nibble::audit {

struct JsonFacts {
  std::vector<std::string>
      modules;  // files beside this one that an auto_map names ("modeling_x.py")
};

// `name` is the file's, for what depends on it: the damage of a file that nothing reads is only noted.
JsonFacts check_json(std::string_view name, std::string_view text, std::vector<Finding>& findings);

// A template's text, at `where` in its file.
void check_template(std::string_view text, const std::string& where,
                    std::vector<Finding>& findings);

// Damage: a refusal where the file matters (file_kind.h), else a note.
void add_damage(std::string_view name, std::vector<Finding>& findings, Code code,
                std::string message, std::string where = {});

}  // namespace nibble::audit
