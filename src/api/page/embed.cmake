# cmake -DSOURCE=folder -DOUTPUT=file.cpp -P embed.cmake
#   Writes the page's files as arrays into one C++ file that defines nibble::api::page_assets().
set(assets
  "/|index.html|text/html"
  "/assets/page.css|page.css|text/css"
  "/assets/page.js|page.js|text/javascript"
  "/assets/icon.svg|icon.svg|image/svg+xml")
set(arrays "")
set(rows "")
set(index 0)
foreach(asset IN LISTS assets)
  string(REPLACE "|" ";" fields "${asset}")
  list(POP_FRONT fields path file type)
  if(type MATCHES "^text/")
    string(APPEND type "; charset=utf-8")
  endif()
  file(READ ${SOURCE}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND arrays "constexpr char kBytes${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", \"${type}\", {kBytes${index}, sizeof kBytes${index}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"api/page_assets.h\"

namespace nibble::api {
namespace {

${arrays}
constexpr PageAsset kAssets[] = {
${rows}};

}  // namespace

std::span<const PageAsset> page_assets() { return kAssets; }

}  // namespace nibble::api
")
