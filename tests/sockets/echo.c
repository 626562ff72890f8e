/* Measures a TCP connection within this host: `echo serve PORT` and, as another process,
 *
 *   echo pingpong PORT BYTES ROUNDS          latency: a message there and back
 *   echo send PORT BYTES PER_SECOND SECONDS  a fixed rate in one direction
 *   echo stream PORT BYTES SECONDS           as fast as it goes, in one direction
 *
 * Both sides print CPU time from getrusage. The server ends after one connection. Blocking calls only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BYTES_MAX (1 << 20)

static char buffer[BYTES_MAX];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void send_all(int fd, const char *from, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send");
        from += sent;
        bytes -= sent;
    }
}

static int receive_all(int fd, char *to, size_t bytes) {
    while (bytes > 0) {
        ssize_t received = recv(fd, to, bytes, 0);
        if (received < 0)
            fail("recv");
        if (received == 0)
            return 0;
        to += received;
        bytes -= received;
    }
    return 1;
}

/* What the client asks for. */
struct wish {
    uint32_t bytes;
    uint32_t echoes;
};

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void serve(int port) {
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
        fail("listen");
    int fd = accept(listener, 0, 0);
    if (fd < 0)
        fail("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct wish wish;
    if (!receive_all(fd, (char *)&wish, sizeof wish) || wish.bytes > BYTES_MAX)
        fail("the client's wish");
    send_all(fd, "!", 1);
    double before = cpu();
    uint64_t received = 0;
    if (wish.echoes) {
        while (receive_all(fd, buffer, wish.bytes)) {
            send_all(fd, buffer, wish.bytes);
            received += wish.bytes;
        }
    } else {
        for (;;) {
            ssize_t some = recv(fd, buffer, sizeof buffer, 0);
            if (some < 0)
                fail("recv");
            if (some == 0)
                break;
            received += some;
        }
    }
    printf("{\"received\":%llu,\"cpu_s\":%.6f}\n", (unsigned long long)received, cpu() - before);
}

static int dial(int port, uint32_t bytes, uint32_t echoes) {
    int on = 1, fd = -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int tries = 0; tries < 200; tries++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(fd, (struct sockaddr *)&address, sizeof address))
            break;
        close(fd);
        fd = -1;
        usleep(10000);
    }
    if (fd < 0)
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct wish wish = {bytes, echoes};
    char answer;
    send_all(fd, (char *)&wish, sizeof wish);
    if (!receive_all(fd, &answer, 1))
        fail("the server's answer");
    return fd;
}

static void pingpong(int port, uint32_t bytes, int rounds) {
    int fd = dial(port, bytes, 1), warm = rounds / 10;
    double *times = calloc(rounds, sizeof *times), before = 0;
    for (int round = -warm; round < rounds; round++) {
        if (round == 0)
            before = cpu();
        double start = now();
        send_all(fd, buffer, bytes);
        if (!receive_all(fd, buffer, bytes))
            fail("echo");
        if (round >= 0)
            times[round] = (now() - start) * 1e6;
    }
    double used = cpu() - before, sum = 0;
    for (int round = 0; round < rounds; round++)
        sum += times[round];
    qsort(times, rounds, sizeof *times, compare);
    printf("{\"rounds\":%d,\"mean_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"cpu_s\":%.6f}\n", rounds, sum / rounds,
           times[rounds / 2], times[rounds * 99LL / 100], used);
}

static void send_at_rate(int port, uint32_t bytes, double rate, double seconds) {
    int fd = dial(port, bytes, 0);
    double before = cpu(), start = now();
    uint64_t sent = 0;
    while (now() - start < seconds) {
        /* What is due by now, so that a late timer lowers no rate. */
        uint64_t due = (uint64_t)((now() - start) * rate) + 1;
        while (sent < due) {
            send_all(fd, buffer, bytes);
            sent++;
        }
        double wait = start + (due / rate) - now();
        if (wait > 0) {
            struct timespec time = {0, (long)(wait * 1e9)};
            nanosleep(&time, 0);
        }
    }
    printf("{\"messages\":%llu,\"seconds\":%.3f,\"cpu_s\":%.6f}\n", (unsigned long long)sent, now() - start,
           cpu() - before);
}

static void stream(int port, uint32_t bytes, double seconds) {
    int fd = dial(port, bytes, 0);
    double before = cpu(), start = now();
    uint64_t sent = 0;
    while (now() - start < seconds) {
        send_all(fd, buffer, bytes);
        sent += bytes;
    }
    printf("{\"sent\":%llu,\"seconds\":%.3f,\"cpu_s\":%.6f}\n", (unsigned long long)sent, now() - start,
           cpu() - before);
}

int main(int count, char **words) {
    const char *what = count > 2 ? words[1] : "";
    int port = count > 2 ? atoi(words[2]) : 0;
    uint32_t bytes = count > 3 ? (uint32_t)atoi(words[3]) : 0;
    if (!strcmp(what, "serve") && count == 3)
        serve(port);
    else if (bytes == 0 || bytes > BYTES_MAX)
        return fputs("usage: echo serve|pingpong|send|stream PORT [BYTES …]\n", stderr), 2;
    else if (!strcmp(what, "pingpong") && count == 5 && atoi(words[4]) > 0)
        pingpong(port, bytes, atoi(words[4]));
    else if (!strcmp(what, "send") && count == 6)
        send_at_rate(port, bytes, atof(words[4]), atof(words[5]));
    else if (!strcmp(what, "stream") && count == 5)
        stream(port, bytes, atof(words[4]));
    else
        return fputs("usage: echo serve|pingpong|send|stream PORT [BYTES …]\n", stderr), 2;
    return 0;
}
