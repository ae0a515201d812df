"""External repositories for the libraries that Debian 12 packages.

Each library has one file bazel/system/<name>.BUILD. A repository holds no
files of its own: headers are found on the compiler's built-in path
(/usr/include) and libraries by -l flags, so nothing is copied or globbed.
The rule asserts at load time that the -dev package is installed, so that a
missing package is one clear message, not a compile error.
"""

# repository name -> (a header that must exist, Debian package to install)
_LIBRARIES = {
    "absl": ("/usr/include/absl/base/options.h", "libabsl-dev"),
    "cli11": ("/usr/include/CLI/CLI.hpp", "libcli11-dev"),
    "crypto": ("/usr/include/openssl/evp.h", "libssl-dev"),
    "grpc": ("/usr/include/grpcpp/grpcpp.h", "libgrpc++-dev protobuf-compiler-grpc"),
    "gtest": ("/usr/include/gmock/gmock.h", "libgtest-dev libgmock-dev"),
    "hwy": ("/usr/include/hwy/highway.h", "libhwy-dev"),
    "isal": ("/usr/include/isa-l.h", "libisal-dev"),
    "nlohmann_json": ("/usr/include/nlohmann/json.hpp", "nlohmann-json3-dev"),
    "prometheus_cpp": ("/usr/include/prometheus/registry.h", "prometheus-cpp-dev"),
    "protobuf": ("/usr/include/google/protobuf/message.h", "libprotobuf-dev protobuf-compiler"),
    "spdlog": ("/usr/include/spdlog/spdlog.h", "libspdlog-dev"),
    "sqlite3": ("/usr/include/sqlite3.h", "libsqlite3-dev"),
    "yaml_cpp": ("/usr/include/yaml-cpp/yaml.h", "libyaml-cpp-dev"),
}

def _system_library_impl(ctx):
    if not ctx.path(ctx.attr.header).exists:
        fail("%s not found: apt-get install %s" % (ctx.attr.header, ctx.attr.package))
    for tool in ctx.attr.tools:
        path = ctx.which(tool)
        if path == None:
            fail("%s not on PATH: apt-get install %s" % (tool, ctx.attr.package))
        ctx.symlink(path, "bin/" + tool)
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

_system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "header": attr.string(mandatory = True),
        "package": attr.string(mandatory = True),
        "tools": attr.string_list(),
    },
    configure = True,
    local = True,
    environ = ["PATH"],
)

_TOOLS = {
    "grpc": ["grpc_cpp_plugin"],
    "protobuf": ["protoc"],
}

def system_libraries():
    for name, (header, package) in _LIBRARIES.items():
        _system_library(
            name = name,
            build_file = "//bazel/system:%s.BUILD" % name,
            header = header,
            package = package,
            tools = _TOOLS.get(name, []),
        )
