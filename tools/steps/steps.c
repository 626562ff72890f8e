// Writes every instruction that one thread executes: 8 bytes for each, its address, and in the top 16 bits
// the number of the system call plus one if it is a `syscall`. See README.md.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(const char *what) {
    perror(what);
    return 1;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: steps THREAD INSTRUCTIONS FILE\n");
        return 2;
    }
    pid_t thread = atoi(arguments[1]);
    long most = atol(arguments[2]);
    FILE *file = fopen(arguments[3], "wb");
    if (!file) return failed(arguments[3]);
    if (ptrace(PTRACE_SEIZE, thread, 0, 0)) return failed("can't trace the thread");
    ptrace(PTRACE_INTERRUPT, thread, 0, 0);
    int status;
    waitpid(thread, &status, __WALL);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", thread);
    int memory = open(path, O_RDONLY);
    if (memory < 0) return failed(path);
    for (long step = 0; step < most; step++) {
        struct user_regs_struct registers;
        if (ptrace(PTRACE_GETREGS, thread, 0, &registers)) return failed("registers");
        uint64_t entry = registers.rip;
        unsigned char code[2] = {0, 0};
        if (pread(memory, code, 2, (off_t)registers.rip) == 2 && code[0] == 0x0f && code[1] == 0x05)
            entry |= (registers.rax + 1) << 48;
        fwrite(&entry, sizeof entry, 1, file);
        if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0)) return failed("step");
        if (waitpid(thread, &status, __WALL) < 0 || WIFEXITED(status)) break;
    }
    fclose(file);
    ptrace(PTRACE_DETACH, thread, 0, 0);
    return 0;
}
