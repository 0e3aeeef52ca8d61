# The CUDA backend: nvcc 13.0 or newer, machine code for every architecture, no PTX that a driver would have to compile
# (quantization.md 7, point 9).
set(NIBBLE_CUDA_ARCHITECTURES "80;89;90a;100a;120f" CACHE STRING "GPU architectures to build machine code for")

if(NOT CMAKE_CUDA_COMPILER)
  find_program(NIBBLE_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${NIBBLE_NVCC})
endif()
# By hand: CMake 3.25 does not know 120f.
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} at ${CMAKE_CUDA_COMPILER}; 13.0 or newer is needed")
endif()
find_package(CUDAToolkit REQUIRED)
if(NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)  # CMake 3.25 does not know that nvcc 12 and newer do
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
if(NIBBLE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# src/quant is constexpr, and compiled for the device from the same headers. No contraction: the order of operations is ours.
set(cuda_flags --expt-relaxed-constexpr -fmad=false -lineinfo)
foreach(architecture ${NIBBLE_CUDA_ARCHITECTURES})
  list(APPEND cuda_flags "SHELL:-gencode=arch=compute_${architecture},code=sm_${architecture}")
endforeach()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
