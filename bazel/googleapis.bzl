"""@googleapis: google/rpc's error details, of the wheel googleapis-common-protos.

Looked for in $MEGATRAIN_DEPS, the folder that deploy/setup fills. Compiled once into one
library: two copies in one program abort when it starts.
"""

_FILES = ["code", "error_details", "status"]

_BUILD = """
package(default_visibility = ["//visibility:public"])

genrule(
    name = "codegen",
    srcs = [{protos}],
    outs = [{outs}],
    cmd = "$(location @protobuf//:bin/protoc) --proto_path=external/googleapis --proto_path=/usr/include " +
          "--cpp_out=$(RULEDIR) $(SRCS)",
    tools = ["@protobuf//:bin/protoc"],
)

cc_library(
    name = "rpc_cc_proto",
    srcs = [{srcs}],
    hdrs = [{hdrs}],
    copts = ["-w"],
    features = ["-layering_check"],
    includes = ["."],
    deps = ["@protobuf"],
)
"""

def _labels(suffixes):
    return ", ".join(['"google/rpc/%s%s"' % (n, s) for n in _FILES for s in suffixes])

def _impl(ctx):
    folder = ctx.os.environ.get("MEGATRAIN_DEPS", "/nowhere") + "/google/rpc/"
    if not ctx.path(folder + "status.proto").exists:
        fail("google/rpc/status.proto not found: eval \"$(deploy/setup)\" first")
    for name in _FILES:
        ctx.symlink(folder + name + ".proto", "google/rpc/" + name + ".proto")

    ctx.file("BUILD.bazel", _BUILD.format(
        protos = _labels([".proto"]),
        outs = _labels([".pb.h", ".pb.cc"]),
        srcs = _labels([".pb.cc"]),
        hdrs = _labels([".pb.h"]),
    ))

googleapis_repository = repository_rule(
    implementation = _impl,
    configure = True,
    local = True,
    environ = ["MEGATRAIN_DEPS"],
)
