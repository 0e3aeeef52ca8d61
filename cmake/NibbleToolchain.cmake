# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# The packaged binary finds the libraries that travel with it; a build tree uses the system's.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Release keeps assertions of the standard library off but NIBBLE_CHECK on.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")

find_program(NIBBLE_CCACHE ccache)
if(NIBBLE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NIBBLE_CCACHE})
endif()
find_program(NIBBLE_MOLD mold)
if(NIBBLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(nibble_flags INTERFACE)
target_compile_options(nibble_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow
  # Every backend promises the same bits for the same op and shape: no contraction behind our back.
  -ffp-contract=off)
if(NIBBLE_WERROR)
  target_compile_options(nibble_flags INTERFACE -Werror)
endif()
if(NIBBLE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(NIBBLE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
