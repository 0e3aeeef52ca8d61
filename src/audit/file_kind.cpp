#include "audit/file_kind.h"

#include <algorithm>
#include <array>
#include <string>

namespace nibble::audit {
namespace {

struct Ending {
  std::string_view ending;  // lower case
  FileKind kind;
};

constexpr std::array kEndings = {
    Ending{".safetensors", FileKind::kSafetensors},
    Ending{".json", FileKind::kJson},
    Ending{".jinja", FileKind::kTemplate},
    Ending{".jinja2", FileKind::kTemplate},
    Ending{".j2", FileKind::kTemplate},
    Ending{".py", FileKind::kPython},
    Ending{".pyw", FileKind::kPython},
    Ending{".pyx", FileKind::kPython},
    Ending{".ipynb", FileKind::kPython},
    Ending{".sh", FileKind::kScript},
    Ending{".bash", FileKind::kScript},
    Ending{".zsh", FileKind::kScript},
    Ending{".bat", FileKind::kScript},
    Ending{".cmd", FileKind::kScript},
    Ending{".ps1", FileKind::kScript},
    Ending{".js", FileKind::kScript},
    Ending{".mjs", FileKind::kScript},
    Ending{".rb", FileKind::kScript},
    Ending{".pl", FileKind::kScript},
    Ending{".lua", FileKind::kScript},
    Ending{".vbs", FileKind::kScript},
    Ending{"makefile", FileKind::kScript},
    Ending{"dockerfile", FileKind::kScript},
    Ending{".bin", FileKind::kPickle},
    Ending{".pt", FileKind::kPickle},
    Ending{".pth", FileKind::kPickle},
    Ending{".ckpt", FileKind::kPickle},
    Ending{".pkl", FileKind::kPickle},
    Ending{".pickle", FileKind::kPickle},
    Ending{".joblib", FileKind::kPickle},
    Ending{".dill", FileKind::kPickle},
    Ending{".pdparams", FileKind::kPickle},
    Ending{".pdopt", FileKind::kPickle},
    Ending{".h5", FileKind::kCodeFormat},
    Ending{".hdf5", FileKind::kCodeFormat},
    Ending{".keras", FileKind::kCodeFormat},
    Ending{".pb", FileKind::kCodeFormat},
    Ending{".nemo", FileKind::kCodeFormat},
    Ending{".mar", FileKind::kCodeFormat},
    Ending{".pt2", FileKind::kCodeFormat},
    Ending{".engine", FileKind::kCodeFormat},
    Ending{".plan", FileKind::kCodeFormat},
    Ending{".llamafile", FileKind::kCodeFormat},
    Ending{".so", FileKind::kCodeFormat},
    Ending{".dll", FileKind::kCodeFormat},
    Ending{".dylib", FileKind::kCodeFormat},
    Ending{".exe", FileKind::kCodeFormat},
    Ending{".pyd", FileKind::kCodeFormat},
    Ending{".pyc", FileKind::kCodeFormat},
    Ending{".pyo", FileKind::kCodeFormat},
    Ending{".jar", FileKind::kCodeFormat},
    Ending{".class", FileKind::kCodeFormat},
    Ending{".whl", FileKind::kCodeFormat},
    Ending{".gguf", FileKind::kOtherFormat},
    Ending{".ggml", FileKind::kOtherFormat},
    Ending{".onnx", FileKind::kOtherFormat},
    Ending{".onnx_data", FileKind::kOtherFormat},
    Ending{".msgpack", FileKind::kOtherFormat},
    Ending{".tflite", FileKind::kOtherFormat},
    Ending{".mlmodel", FileKind::kOtherFormat},
    Ending{".npy", FileKind::kOtherFormat},
    Ending{".incomplete", FileKind::kPartial},
    Ending{".part", FileKind::kPartial},
    Ending{".tmp", FileKind::kPartial},
    Ending{".aria2", FileKind::kPartial},
    Ending{".crdownload", FileKind::kPartial},
    Ending{".md", FileKind::kDocument},
    Ending{".txt", FileKind::kDocument},
    Ending{".rst", FileKind::kDocument},
    Ending{".pdf", FileKind::kDocument},
    Ending{".png", FileKind::kDocument},
    Ending{".jpg", FileKind::kDocument},
    Ending{".jpeg", FileKind::kDocument},
    Ending{".gif", FileKind::kDocument},
    Ending{".svg", FileKind::kDocument},
    Ending{".webp", FileKind::kDocument},
    Ending{".csv", FileKind::kDocument},
    Ending{".jsonl", FileKind::kDocument},
    Ending{".yaml", FileKind::kDocument},
    Ending{".yml", FileKind::kDocument},
    Ending{".toml", FileKind::kDocument},
    Ending{".bib", FileKind::kDocument},
    Ending{".cff", FileKind::kDocument},
    Ending{".model", FileKind::kDocument},  // sentencepiece and tiktoken vocabularies
    Ending{".tiktoken", FileKind::kDocument},
    Ending{".gitattributes", FileKind::kDocument},
    Ending{".gitignore", FileKind::kDocument},
    Ending{".gitkeep", FileKind::kDocument},
    Ending{"cachedir.tag", FileKind::kDocument},
};

constexpr std::array<std::string_view, 8> kDocumentNames = {
    "license", "licence", "notice", "readme", "copying", "changelog", "use_policy", "authors"};

}  // namespace

bool is_top_level(std::string_view name) {
  return name.find('/') == std::string_view::npos;
}

FileKind kind_of(std::string_view name) {
  if (name == kLockName) return FileKind::kLock;
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const std::string_view whole = lower;
  if (name.starts_with(kHubMetadataFolder) &&
      (whole.ends_with(".metadata") || whole.ends_with(".lock")))
    return FileKind::kHubMetadata;
  constexpr std::string_view kEncoderFolder = "encoding/";
  if (name.starts_with(kEncoderFolder) && whole.ends_with(".py") &&
      is_top_level(name.substr(kEncoderFolder.size())))
    return FileKind::kEncoder;
  for (const Ending& ending : kEndings) {
    if (whole.ends_with(ending.ending)) return ending.kind;
  }
  const std::string_view last = whole.substr(whole.rfind('/') + 1);
  for (const std::string_view document : kDocumentNames) {
    if (last.starts_with(document)) return FileKind::kDocument;
  }
  return FileKind::kUnknown;
}

bool matters(std::string_view name) {
  switch (kind_of(name)) {
    case FileKind::kSafetensors:
    case FileKind::kEncoder:
    case FileKind::kTemplate:
    case FileKind::kLock:
      return true;
    case FileKind::kJson:
      return is_top_level(name);
    default:
      return false;
  }
}

}  // namespace nibble::audit
