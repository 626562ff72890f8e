// The program `slackwater` of a wheel. The engine is in the wheel once, in the Python module; this loads it and
// runs the command line that is in it, without Python. It is compiled together with a definition of each
// symbol of Python that the module names: the loader wants them, and nothing here uses them.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Below the prefix of an environment, beside the module's own version.
static const char MODULE[] =
    "lib*/python3*/*-packages/slackwater-" VERSION ".dist-info/../slackwater/_slackwater.abi3.so";

int main(void) {
  char path[PATH_MAX], pattern[PATH_MAX + sizeof MODULE];
  // Without symbolic links: those of `uv tool` and `pipx` lead to an environment.
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) {
    perror("error: /proc/self/exe");
    return 1;
  }
  path[length] = 0;
  for (int level = 0; level < 2; level++) {
    char *end = strrchr(path, '/');
    if (end) *end = 0;
  }
  snprintf(pattern, sizeof pattern, "%s/%s", path, MODULE);
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) {
    fprintf(stderr, "error: %s: there is no such file\n  = python3 -m pip install --force-reinstall slackwater\n",
            pattern);
    return 1;
  }
  void *module = dlopen(found.gl_pathv[0], RTLD_NOW);
  int (*run)(void) = module ? (int (*)(void))dlsym(module, "slackwater_main") : NULL;
  if (!run) {
    fprintf(stderr, "error: %s\n", dlerror());
    return 1;
  }
  // As in every Rust program: a closed pipe is an error of the write.
  signal(SIGPIPE, SIG_IGN);
  return run();
}
