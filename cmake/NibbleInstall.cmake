# The executable's own settings, and `cmake --install`: bin/nibble and share/nibble, the layout of the packaged tar.
# packaging/make-package.sh adds the libraries that travel with the executable.
#
# An old-style RPATH, not RUNPATH: only that one also finds the libraries' own dependencies (spdlog needs fmt).
nibble_cold(nibble)
target_link_options(nibble PRIVATE -Wl,--disable-new-dtags)
set_target_properties(nibble PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS nibble RUNTIME DESTINATION bin)
install(DIRECTORY models/tiny DESTINATION share/nibble/models)
install(FILES LICENSE README.md DESTINATION .)
