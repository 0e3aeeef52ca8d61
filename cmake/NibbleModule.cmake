# nibble_cold(TARGET): under the sanitizers, built without optimisation (the later -O wins).
function(nibble_cold target)
  if(NIBBLE_COLD_MODULES AND NOT NIBBLE_FUZZ)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# nibble_module(NAME [DEPENDS ...] [LINK ...])
#   One static library a folder, from its *.cpp; *_test.cpp become the executable NAME_test, *_fuzz.cpp fuzz targets.
#   DEPENDS names the modules it may include from; LINK names outside libraries.
function(nibble_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  set(modules ${ARG_DEPENDS})
  list(TRANSFORM modules PREPEND nibble_)
  if(sources)
    add_library(nibble_${name} STATIC ${sources})
    target_include_directories(nibble_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(nibble_${name} PUBLIC ${modules} ${ARG_LINK} PRIVATE nibble_flags)
    if(name IN_LIST NIBBLE_COLD_MODULES)
      nibble_cold(nibble_${name})
    endif()
  else()
    add_library(nibble_${name} INTERFACE)
    target_include_directories(nibble_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(nibble_${name} INTERFACE ${modules} ${ARG_LINK})
  endif()
  if(tests)
    nibble_test(${name}_test SOURCES ${tests} DEPENDS ${name})
  endif()
  foreach(source ${fuzzers})
    get_filename_component(target ${source} NAME_WE)
    nibble_fuzz(${target} SOURCES ${source} DEPENDS ${name})
  endforeach()
endfunction()

# Labels choose what runs where:
#   unit golden server package   everywhere, with NIBBLE_TEST_SHORT=1 under the sanitizers
#   browser                      not under the sanitizers
#   long                         `make test-long` only
#   threads                      also under ThreadSanitizer: the tests in this list, and nibble_pytest(... THREADS)
set(NIBBLE_THREAD_TESTS base_test convert_test ops_cpu_test engine_test sched_test api_test)
add_custom_target(thread_tests)  # what the tsan preset builds
add_custom_target(fuzz_targets)  # what the fuzz preset builds

# nibble_test(TARGET SOURCES ... [DEPENDS modules...] [LINK ...] [LABELS ...] [SHARDS n]): a GoogleTest executable, and
# one ctest test (a process for each case would load the same checkpoint hundreds of times). A long one is cut into n
# tests that can run side by side, and starts before the others.
function(nibble_test target)
  if(NOT NIBBLE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;DEPENDS;LINK;LABELS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND nibble_)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} ${ARG_LINK} nibble_flags
    GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE NIBBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    NIBBLE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  nibble_cold(${target})
  if(target IN_LIST NIBBLE_THREAD_TESTS)
    list(APPEND ARG_LABELS threads)
    add_dependencies(thread_tests ${target})
  endif()
  if(NOT ARG_SHARDS AND golden IN_LIST ARG_LABELS)
    set(ARG_SHARDS 2)
  endif()
  if(NOT ARG_SHARDS)
    nibble_add_gtest(${target} ${target})
    set_tests_properties(${target} PROPERTIES LABELS "${ARG_LABELS}")
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    nibble_add_gtest(${target}_${shard} ${target})
    set_tests_properties(${target}_${shard} PROPERTIES LABELS "${ARG_LABELS}" COST 1000
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# One ctest test; its cases go to results/NAME.xml, which tests/summary.py counts.
function(nibble_add_gtest name target)
  add_test(NAME ${name} COMMAND ${target} --gtest_output=xml:${PROJECT_BINARY_DIR}/results/${name}.xml)
endfunction()

# nibble_pytest(NAME FILES ... [LABELS ...] [THREADS]): pytest files that drive the built executable, whose path is in
# NIBBLE_BINARY. A run in which every case is skipped counts as skipped, one that finds no case as failed.
function(nibble_pytest name)
  if(NOT NIBBLE_TESTS OR NOT TARGET nibble)
    return()
  endif()
  cmake_parse_arguments(ARG "THREADS" "" "FILES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS server)
  endif()
  list(TRANSFORM ARG_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_test(NAME ${name}
    COMMAND ${NIBBLE_PYTHON} -m pytest -q -rs -p no:cacheprovider
      --junitxml=${PROJECT_BINARY_DIR}/results/${name}.xml ${ARG_FILES}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  if(ARG_THREADS)
    list(APPEND ARG_LABELS threads)
    add_dependencies(thread_tests nibble)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}"
    ENVIRONMENT "NIBBLE_BINARY=$<TARGET_FILE:nibble>;PYTHONDONTWRITEBYTECODE=1"
    SKIP_REGULAR_EXPRESSION "(^|\n)[0-9]+ skipped in ")
endfunction()

# nibble_fuzz(TARGET SOURCES ... DEPENDS modules...): a libFuzzer executable; seeds in tests/fuzz/corpus/TARGET.
function(nibble_fuzz target)
  if(NOT NIBBLE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND nibble_)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} ${ARG_LINK} nibble_flags)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  add_dependencies(fuzz_targets ${target})
endfunction()
